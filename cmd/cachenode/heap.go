package main

// heapFloor is the size of memory that a node allocates and never touches: it takes none of the
// machine's. To the garbage collector it is live, so that a node with few keys, which has a heap
// of some 10 MiB, is not collected ten times a second while it delivers events; that was a fifth
// of their CPU time.
const heapFloor = 32 << 20
