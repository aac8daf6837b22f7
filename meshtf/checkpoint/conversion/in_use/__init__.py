"""What the files beside another library's weights say of their use: tokenizer, begin token, generation."""
