/**
 * What phases of one launch wait for: barriers across the grid in several forms, against dependent launches, with what lies between
 * phases (values stored, values staged in workgroup memory).
 *
 *     node bench/barrier.mjs [PARTS]      PARTS: letters of a b c e, all if left out; QUICK=1 for software devices
 *
 * Plain WGSL on Dawn alone, so that a form can be tried before the compiler has it. Every form is checked: values that are read
 * behind a wait and are not the ones written in front of it count as stale, waits that end by their limit as gave up.
 */
import {
  act,
  chain,
  compiled,
  device,
  end,
  fits,
  forms,
  grids,
  head,
  leaves,
  limit,
  lose,
  perStep,
  pipe,
  plain,
  quick,
  row,
  since,
  sizes,
  tail,
  told
} from "./support/plain.mjs"

const parts = process.argv[2] ?? "abce"

// a: barriers alone. Flags: 1 every thread stores a word atomically, 4 plainly, 2 values are checked
const barrierOnly = (form, T) =>
  `${head(T)}
  for (var s = 1u; s <= u.y; s++) {
    let half = (s & 1u) * G * ${T}u;
    if ((u.x & 3u) != 0u) { atomicStore(&act[half + g * ${T}u + lid], s); }
    if ((u.x & 4u) != 0u) { plain[half + g * ${T}u + lid] = s; }
    ${form.arrive}
    ${form.wait(T)}
    if ((u.x & 2u) != 0u) { for (var j = 0u; j < 4u; j++) { old += u32(atomicLoad(&act[half + ((g + 1u + j * 37u) % G) * ${T}u + (lid + j) % ${T}u]) != s); } }
  }
${tail}`
if (parts.includes("a")) {
  console.log("\na. A barrier alone, us; workgroups x threads")
  const cases = grids.flatMap((G) => sizes.filter((T) => fits(G, T)).map((T) => [G, T]))
  row("", cases.map(([G, T]) => `${G}x${T}`))
  // compile beside each other
  await Promise.all(Object.values(forms).flatMap((form) => sizes.map((T) => pipe(barrierOnly(form, T)))))
  since()
  for (const [name, form] of Object.entries(forms)) {
    const cells = []
    for (const [G, T] of cases) cells.push(await perStep(barrierOnly(form, T), G, {}))
    row(name, cells)
  }
  for (const [what, flags] of [["an atomic store of each thread", 1], ["a plain store of each thread", 4]]) {
    const cells = []
    for (const [G, T] of cases) cells.push(await perStep(barrierOnly(forms[compiled], T), G, { flags }))
    row(`as compiled, behind ${what}`, cells)
  }
  since()
}

// b: dependent launches, empty but for one word of each thread
const links = quick ? 8 : 400
if (parts.includes("b")) {
  console.log("\nb. A dependent launch that adds one to a word of each thread, us")
  const cases = grids.flatMap((G) => sizes.map((T) => [G, T]))
  row("", cases.map(([G, T]) => `${G}x${T}`))
  const cells = []
  for (const [G, T] of cases) cells.push(await chain(`${head(T)} plain[g * ${T}u + lid] += 1u; ${tail}`, G, links))
  row("launch", cells)
  since()
}

// c: staging alone, each step's place depends on what the step before it staged
const stageWays = {
  "four words a thread, in a loop": (T, N) =>
    `for (var k = 0u; k < ${Math.ceil(N / 4 / T)}u; k++) { let v = k * ${T}u + lid; if (v < ${
      N / 4
    }u) { let q = at + 4u * v; xs[v] = vec4<u32>(atomicLoad(&act[q]), atomicLoad(&act[q + 1u]), atomicLoad(&act[q + 2u]), atomicLoad(&act[q + 3u])); } }`,
  "a word a thread, in a loop": (T, N) =>
    `for (var k = lid; k < ${N}u; k += ${T}u) { ys[k] = atomicLoad(&act[at + k]); }`,
  "a word a thread, loads first": (T, N) => {
    const turns = Array.from({ length: Math.ceil(N / T) }, (_, k) => k)
    return `${
      turns.map((k) =>
        `var x${k} = 0u; if (${(k + 1) * T <= N} || lid + ${k * T}u < ${N}u) { x${k} = atomicLoad(&act[at + lid + ${
          k * T
        }u]); }`
      ).join(" ")
    } ${
      turns.map((k) => `if (${(k + 1) * T <= N} || lid + ${k * T}u < ${N}u) { ys[lid + ${k * T}u] = x${k}; }`).join(" ")
    }`
  },
  "vec4 of a read-only buffer": (T, N) => `for (var k = lid; k < ${N / 4}u; k += ${T}u) { xs[k] = w[at / 4u + k]; }`,
  "vec4 of it, other lines each time": (T, N) =>
    `for (var k = lid; k < ${N / 4}u; k += ${T}u) { xs[k] = w[((s * 641u + g) % 251u) * ${N / 4}u + at / 4u + k]; }`
}
const memoryOf = (way, N) =>
  stageWays[way].toString().includes("ys[")
    ? `var<workgroup> ys: array<u32, ${N}>;`
    : `var<workgroup> xs: array<vec4<u32>, ${N / 4}>;`
const firstOf = (way) =>
  stageWays[way].toString().includes("ys[") ? "ys[(lid * 7u + s) & 1023u]" : "xs[(lid * 7u + s) & 255u].x"
const staged = (way, T, N) =>
  `${head(T, memoryOf(way, N))}
  var at = 0u;
  for (var s = 1u; s <= u.y; s++) { ${stageWays[way](T, N)} workgroupBarrier(); at = select(0u, 4u, ${
    firstOf(way)
  } == 77u); junk += at; workgroupBarrier(); }
${tail}`
const boundaryCases = quick
  ? [[2, 64]]
  : [[132, 256], [132, 512], [132, 1024], [264, 256], [264, 512], [264, 1024], [528, 256], [528, 512]]
const lengths = quick ? [1024] : [1024, 2048, 4096]
if (parts.includes("c")) {
  device.queue.writeBuffer(act, 0, new Uint32Array(2 ** 16))
  console.log("\nc. Staging in workgroup memory alone, us (two barriers of the workgroup beside it)")
  row("", boundaryCases.map(([G, T]) => `${G}x${T}`), 50)
  await Promise.all(
    Object.keys(stageWays).flatMap((way) =>
      lengths.flatMap((N) => [...new Set(boundaryCases.map(([, T]) => T))].map((T) => pipe(staged(way, T, N))))
    )
  )
  for (const N of lengths) {
    for (const way of Object.keys(stageWays)) {
      const cells = []
      for (const [G, T] of boundaryCases) cells.push(await perStep(staged(way, T, N), G, {}))
      row(`${4 * N} bytes, ${way}`, cells, 50)
    }
  }
  since()
}

// e: a whole boundary: store the values (each workgroup its share), wait, stage all of them. `k` workgroups have work, all wait
// every workgroup with work has a word at least: who stores nothing could be overtaken where values are waited for
const share = (N) =>
  `if (g < k) { let o0 = g * ${N}u / k; let o1 = (g + 1u) * ${N}u / k; for (var i = o0 + lid; i < o1; i += T) { atomicStore(&act[half + i], s); } }`
const boundary = (form, way, T, N) =>
  `${head(T, memoryOf(way, N))}
  let k = min(u.z, G); let T = ${T}u;
  for (var s = 1u; s <= u.y; s++) {
    let half = (s & 1u) * ${N}u; let at = half;
    ${share(N)}
    ${form.arrive}
    ${form.wait(T)}
    if (g < k) { ${stageWays[way](T, N)} }
    workgroupBarrier();
    if (g < k) { let seen = ${firstOf(way)}; junk += seen; old += u32(seen != s); }
    workgroupBarrier();
  }
${tail}`
/** No barrier: a reader waits for the values themselves, which are never twice the same. */
const flowing = (T, N) => {
  const turns = Array.from({ length: Math.ceil(N / T) }, (_, k) => k)
  const there = (k) => (k + 1) * T <= N ? "true" : `lid + ${k * T}u < ${N}u`
  return `${head(T, `var<workgroup> ys: array<u32, ${N}>;`)}
  let k = min(u.z, G); let T = ${T}u;
  for (var s = 1u; s <= u.y; s++) {
    let half = (s & 1u) * ${N}u; let at = half;
    ${share(N)}
    ${
    turns.map((k) => `var x${k} = s; if (${there(k)}) { x${k} = atomicLoad(&act[at + lid + ${k * T}u]); }`).join(
      "\n    "
    )
  }
    if (dead == 0u) { var n = 0u; while (${
    turns.map((k) => `x${k} != s`).join(" || ")
  }) { n++; if (n > ${limit}u) ${lose}
      ${turns.map((k) => `if (x${k} != s) { x${k} = atomicLoad(&act[at + lid + ${k * T}u]); }`).join("\n      ")} } }
    ${turns.map((k) => `if (${there(k)}) { ys[lid + ${k * T}u] = x${k}; }`).join(" ")}
    workgroupBarrier();
    let seen = ys[(lid * 7u + s) & 1023u]; junk += seen; old += u32(seen != s);
    workgroupBarrier();
  }
${tail}`
}
const boundaryForms = [compiled, told, "one counter", "released by the last", leaves]
if (parts.includes("e")) {
  console.log("\ne. A boundary between phases: store, wait, stage, us")
  row("", boundaryCases.map(([G, T]) => `${G}x${T}`), 72)
  const threads = [...new Set(boundaryCases.map(([, T]) => T))]
  const [loop, first] = [Object.keys(stageWays)[0], Object.keys(stageWays)[2]]
  await Promise.all(
    lengths.flatMap((N) =>
      threads.flatMap((
        T
      ) => [
        pipe(flowing(T, N)),
        pipe(boundary(forms[boundaryForms[0]], loop, T, N)),
        ...boundaryForms.map((name) => pipe(boundary(forms[name], first, T, N)))
      ])
    )
  )
  since()
  for (const N of lengths) {
    const line = async (name, codeOf, extra) => {
      const cells = []
      for (const [G, T] of boundaryCases) cells.push(await perStep(codeOf(T), G, { extra }))
      row(name, cells, 72)
    }
    const all = 2 ** 30
    await line(
      `${4 * N} bytes, ${boundaryForms[0]}, ${loop}`,
      (T) => boundary(forms[boundaryForms[0]], loop, T, N),
      all
    )
    for (const name of boundaryForms) {
      await line(`${4 * N} bytes, ${name}, loads first`, (T) => boundary(forms[name], first, T, N), all)
    }
    await line(`${4 * N} bytes, values waited for`, (T) => flowing(T, N), all)
    if (N !== 2048 && !quick) continue
    for (const k of [1, 16, 66]) {
      for (const name of [compiled]) {
        await line(`${4 * N} bytes, ${k} workgroups have work, ${name}`, (T) => boundary(forms[name], first, T, N), k)
      }
    }
    const cells = []
    for (const [G, T] of boundaryCases) {
      cells.push(
        await chain(
          `${head(T, `var<workgroup> xs: array<vec4<u32>, ${N / 4}>;`)} for (var k = lid; k < ${
            N / 4
          }u; k += ${T}u) { let q = 4u * k; xs[k] = vec4<u32>(plain[q], plain[q + 1u], plain[q + 2u], plain[q + 3u]); } workgroupBarrier(); let o = ${N}u + g * ((${N}u + G - 1u) / G) + lid; if (lid < (${N}u + G - 1u) / G) { plain[o] = xs[lid & 255u].x + 1u; } ${tail}`,
          G,
          links
        )
      )
    }
    row(`${4 * N} bytes, a launch that stages plainly`, cells, 72)
  }
  since()
}

end()
