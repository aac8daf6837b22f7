/* Answers CPUID as a processor without AVX-512 would, where an illegal instruction (`lock nop`) has taken its place.

   Loaded before all else, by LD_PRELOAD. */

#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

/* Intel's manual, volume 2, CPUID: what leaves 7 and 13 say of AVX-512, AMX and the registers of both. */
static const unsigned leaf_7_ebx = BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31);
static const unsigned leaf_7_ecx = BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14);
static const unsigned leaf_7_edx = BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25);
static const unsigned leaf_7_1_eax = BIT(4) | BIT(5) | BIT(21);
static const unsigned leaf_13_eax = BIT(5) | BIT(6) | BIT(7) | BIT(17) | BIT(18);

static void answer(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *instruction = (const unsigned char *)registers[REG_RIP];
  unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX], eax, ebx, ecx, edx;
  (void)info;
  if (instruction[0] != 0xf0 || instruction[1] != 0x90) {
    signal(number, SIG_DFL); /* another one, which now ends the process */
    return;
  }
  __cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
  if (leaf == 7 && subleaf == 0) {
    ebx &= ~leaf_7_ebx;
    ecx &= ~leaf_7_ecx;
    edx &= ~leaf_7_edx;
  } else if (leaf == 7 && subleaf == 1) {
    eax &= ~leaf_7_1_eax;
  } else if (leaf == 13 && subleaf == 0) {
    eax &= ~leaf_13_eax;
  }
  registers[REG_RAX] = eax;
  registers[REG_RBX] = ebx;
  registers[REG_RCX] = ecx;
  registers[REG_RDX] = edx;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGILL, &action, 0);
}
