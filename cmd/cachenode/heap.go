package main

// heapFloor is the size of memory that a node allocates and never touches: it takes none of the
// machine's. To the garbage collector it is live: a node with few keys has a heap of some 5 MiB,
// and would be collected each time it has allocated as much. With four times as much, collections
// cost no less CPU that can be measured, and the garbage of TLS handshakes is resident until then.
const heapFloor = 8 << 20
