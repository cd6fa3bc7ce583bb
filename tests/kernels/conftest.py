"""The tests of kernels need kernels; everything else is tested without them too."""

from fpdb import kernels

if not kernels.available:
    collect_ignore = ["test_chinese_kernel.py", "test_page_kernels.py", "test_text_kernels.py"]
