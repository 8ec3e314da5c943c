//! LZ77 with Huffman codes, as [MS-XCA] defines it.
