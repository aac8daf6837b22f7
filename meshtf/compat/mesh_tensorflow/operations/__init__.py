"""Classes of operations that programs derive of their own, lowered by functions of slices."""
