/** A binary min-heap of numbers. */

/** Puts a key into the heap of the first `size` entries; the heap has room for it. Returns the new size. */
export const push = (heap: Float64Array, size: number, key: number): number => {
  let hole = size
  while (hole > 0) {
    const parent = hole - 1 >> 1
    if (heap[parent]! <= key) break
    heap[hole] = heap[parent]!
    hole = parent
  }
  heap[hole] = key
  return size + 1
}

/** Removes the smallest key, which is `heap[0]`. Returns the new size. */
export const pop = (heap: Float64Array, size: number): number => {
  const last = size - 1
  const key = heap[last]!
  let hole = 0
  for (;;) {
    let child = 2 * hole + 1
    if (child >= last) break
    if (child + 1 < last && heap[child + 1]! < heap[child]!) child += 1
    if (heap[child]! >= key) break
    heap[hole] = heap[child]!
    hole = child
  }
  heap[hole] = key
  return last
}
