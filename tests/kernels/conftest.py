"""The tests of kernels need kernels; everything else is tested without them too."""

from fpdb import kernels

if not kernels.available:
    names = "chinese_kernel", "line_kernels", "page_kernels", "text_kernels"
    collect_ignore = [f"test_{name}.py" for name in names]
