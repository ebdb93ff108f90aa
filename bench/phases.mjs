/**
 * The nine phases of a layer of GLM-4.7-Flash Q4_0 by their bytes, one launch a layer, with each form of a barrier across the grid, with
 * and without loads in front of it; and a launch a phase.
 *
 *     node bench/phases.mjs      QUICK=1 for software devices
 */
import {
  act,
  compiled,
  device,
  end,
  forms,
  group,
  head,
  leaves,
  limit,
  lose,
  once,
  pipe,
  plain,
  plainBarrier,
  quick,
  row,
  set,
  since,
  tail,
  told
} from "./support/plain.mjs"

// d: the nine phases of a layer of GLM, a launch a layer
const MB = quick ? [0.2, 0.1, 0.1] : [2.16, 2.24, 2.16, 1.97, 3.45, 5.92, 0.54, 18.5, 9.68]
const vectors = MB.map((m) => Math.round(m * 1e6 / 16 / 4096) * 4096)
const starts = vectors.map((_, i) => vectors.slice(0, i).reduce((a, b) => a + b, 0))
const layerVectors = vectors.reduce((a, b) => a + b, 0)
const layers = quick ? 2 : 40, P = MB.length
const N9 = quick ? 1024 : 2048
const dots = (v, x) => ["x", "y", "z", "w"].map((c) => `dot4I8Packed(${v}.${c}, ${x}.${c})`).join(" + ")
const used = (k, N) =>
  `if (i < count) { let x = xs[i & ${
    N / 4 - 1
  }u]; let lo = ahead${k} & vec4<u32>(0x0f0f0f0fu); let hi = (ahead${k} >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu); sum += ${
    dots("lo", "x")
  } + ${dots("hi", "x")}; i += step; }`
/** The first vectors of a thread, of a phase with so many vectors from one on. */
const fetched = (T, pre, count, from) =>
  Array.from({ length: pre }, (_, k) => {
    const at = `g * ${T}u + lid + ${k}u * G * ${T}u`
    return `if (${at} < ${count}) { ahead${k} = w[${from} + ${at}]; }`
  }).join(" ")
const phaseBody = (T, N, stageText, pre, isExchanged = false) => `
    ${stageText}
    workgroupBarrier();
    var sum = 0i; let step = G * ${T}u; var i = g * ${T}u + lid;
    ${Array.from({ length: pre }, (_, k) => used(k, N)).join("\n    ")}
    for (; i < count; i += step * 4u) {
      var v: array<vec4<u32>, 4>;
      for (var j = 0u; j < 4u; j++) { let q = i + j * step; if (q < count) { v[j] = w[base + q]; } }
      for (var j = 0u; j < 4u; j++) { let q = i + j * step; if (q < count) { let x = xs[q & ${
  N / 4 - 1
}u]; let y = xs[(q + 1u) & ${
  N / 4 - 1
}u]; let lo = v[j] & vec4<u32>(0x0f0f0f0fu); let hi = (v[j] >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu); sum += ${
  dots("lo", "x")
} + ${dots("hi", "y")}; } }
    }
    let wrong = u32(sum == 123456789); let o1 = (g + 1u) * ${N}u / G;
    for (var o = g * ${N}u / G + lid; o < o1; o += ${T}u) { ${
  isExchanged ? "back |= atomicExchange(&act[half + o], s + wrong)" : "atomicStore(&act[half + o], s + wrong)"
}; }`
const unpackXs = (N, T) => {
  const turns = Array.from({ length: Math.ceil(N / T) }, (_, k) => k)
  const there = (k) => (k + 1) * T <= N ? "true" : `lid + ${k * T}u < ${N}u`
  return { turns, there }
}
/** Scalar staging with loads first, into the words of `xs`. */
const stageFirst = (T, N, flows) => {
  const { there, turns } = unpackXs(N, T)
  return `${
    turns.map((k) => `var x${k} = s - 1u; if (${there(k)}) { x${k} = atomicLoad(&act[src + lid + ${k * T}u]); }`).join(
      " "
    )
  }
    ${
    flows
      ? `if (dead == 0u) { var n = 0u; while (${
        turns.map((k) => `x${k} != s - 1u`).join(" || ")
      }) { n++; if (n > ${limit}u) ${lose} ${
        turns.map((k) => `if (x${k} != s - 1u) { x${k} = atomicLoad(&act[src + lid + ${k * T}u]); }`).join(" ")
      } } }`
      : ""
  }
    ${
    turns.map((k) => `if (${there(k)}) { old += u32(x${k} != s - 1u); xs[(lid + ${k * T}u) >> 2u][lid & 3u] = x${k}; }`)
      .join(" ")
  }`
}
const stageLoop = (T, N) =>
  `for (var k = 0u; k < ${Math.ceil(N / 4 / T)}u; k++) { let v = k * ${T}u + lid; if (v < ${
    N / 4
  }u) { let q = src + 4u * v; let x = vec4<u32>(atomicLoad(&act[q]), atomicLoad(&act[q + 1u]), atomicLoad(&act[q + 2u]), atomicLoad(&act[q + 3u])); old += dot(vec4<u32>(x != vec4<u32>(s - 1u)), vec4<u32>(1u)); xs[v] = x; } }`
/** Loops over the layer's phases. Round numbers count from the launch's first phase; values go on over all layers. */
const layer = (form, T, N, { exchanged = false, flows = false, loop = false, pre = 1 }) =>
  `${
    head(
      T,
      `var<workgroup> xs: array<vec4<u32>, ${N / 4}>; const VEC = array<u32, ${P}>(${
        vectors.map((v) => `${v}u`).join()
      }); const OFF = array<u32, ${P}>(${starts.map((v) => `${v}u`).join()});`
    )
  }
  var vecs = VEC; var offs = OFF; let first = u.y; var back = 0u; ${
    Array.from({ length: pre }, (_, k) => `var ahead${k} = vec4<u32>();`).join(" ")
  }
  ${fetched(T, pre, "vecs[0]", "u.z")}
  for (var p = 0u; p < ${P}u; p++) {
    let count = vecs[p]; let base = u.z + offs[p];
    let round = p + 1u;
    {
      let s = first + p + 1u; let half = (s & 1u) * ${N}u; let src = ${N}u - half;
      ${phaseBody(T, N, loop ? stageLoop(T, N) : stageFirst(T, N, flows), pre, exchanged)}
    }
    if (p + 1u < ${P}u) {
      let s = u.w * ${P - 1}u + round;
      ${exchanged ? "if (back == 0xffffffffu) { atomicAdd(&bar[64], 1u); }" : ""}
      ${flows ? plainBarrier : form.arrive}
      ${fetched(T, pre, "vecs[p + 1u]", "u.z + offs[p + 1u]")}
      ${flows ? "" : form.wait(T)}
    }
  }
${tail}`
const timeLayers = async (code, G, launchesOf) => {
  const p = await pipe(code)
  if (p === undefined) return "refused"
  const all = []
  for (let i = 0; i < (quick ? 1 : 8); i++) {
    for (const values of [act, plain]) device.queue.writeBuffer(values, 0, new Uint32Array(2 ** 16))
    all.push(await once((pass) => launchesOf(pass, p, G)))
  }
  if (all.some((one) => one.gaveUp > 0)) return "gave up"
  if (all.some((one) => one.stale > 0)) return `stale ${all.at(-1).stale}`
  return (Math.min(...all.map(({ micros }) => micros)) * (quick ? 1 : 47 / layers) / 1000).toFixed(3)
}
{
  console.log(
    `\nd. ${P} phases of a layer, ms of 47 layers (${(layerVectors * 16 / 1e6).toFixed(1)} MB each, ${
      4 * N9
    } bytes staged)`
  )
  const cases = quick ? [[2, 64]] : [[132, 256], [132, 512], [132, 1024], [264, 256], [264, 512], [528, 256]]
  row("", cases.map(([G, T]) => `${G}x${T}`), 60)
  const many = (pass, p, G) => {
    pass.setPipeline(p)
    for (let l = 0; l < layers; l++) {
      pass.setBindGroup(0, group, [256 * l])
      pass.dispatchWorkgroups(G)
    }
  }
  const tries = [
    ["stores that nobody waits for (late on some devices)", (T) => layer(forms[compiled], T, N9, {})],
    ["as compiled", (T) => layer(forms[compiled], T, N9, { exchanged: true })],
    ["as compiled, nothing ahead", (T) => layer(forms[compiled], T, N9, { exchanged: true, pre: 0 })],
    ["as compiled, two vectors ahead", (T) => layer(forms[compiled], T, N9, { exchanged: true, pre: 2 })],
    ["as compiled, three vectors ahead", (T) => layer(forms[compiled], T, N9, { exchanged: true, pre: 3 })],
    [
      "as compiled, staged by four words in a loop",
      (T) => layer(forms[compiled], T, N9, { exchanged: true, loop: true })
    ],
    ["as compiled, 2048 bytes staged", (T) => layer(forms[compiled], T, quick ? 1024 : 512, { exchanged: true })],
    ...[told, "one counter", "released by the last", leaves].map((
      name
    ) => [name, (T) => layer(forms[name], T, N9, {})]),
    ...[1, 0, 2, 3].map((
      pre
    ) => [`no barrier, values waited for, ${pre} vectors ahead`, (T) => layer(undefined, T, N9, { flows: true, pre })])
  ]
  await Promise.all(tries.flatMap(([, codeOf]) => [...new Set(cases.map(([, T]) => T))].map((T) => pipe(codeOf(T)))))
  since()
  for (let l = 0; l < layers; l++) set(l, [0, l * P, l * layerVectors, l])
  for (const [name, codeOf] of tries) {
    const cells = []
    for (const [G, T] of cases) cells.push(await timeLayers(codeOf(T), G, many))
    row(name, cells, 60)
  }
  // a launch a phase, values staged plainly by vectors
  const phaseAlone = (T) =>
    `${head(T, `var<workgroup> xs: array<vec4<u32>, ${N9 / 4}>;`)}
    let s = u.y; let count = u.w; let base = u.z; let half = (s & 1u) * ${N9}u; let src = ${N9}u - half;
    ${
      phaseBody(
        T,
        N9,
        `for (var k = lid; k < ${
          N9 / 4
        }u; k += ${T}u) { let q = src + 4u * k; let x = vec4<u32>(plain[q], plain[q + 1u], plain[q + 2u], plain[q + 3u]); old += dot(vec4<u32>(x != vec4<u32>(s - 1u)), vec4<u32>(1u)); xs[k] = x; }`,
        0
      ).replace("atomicStore(&act[half + o], s + wrong)", "plain[half + o] = s + wrong")
    }
  ${tail}`
  for (let l = 0; l < layers; l++) {
    for (let p = 0; p < P; p++) set(l * P + p, [0, l * P + p + 1, l * layerVectors + starts[p], vectors[p]])
  }
  const cells = []
  for (const [G, T] of cases) {
    cells.push(
      await timeLayers(phaseAlone(T), G, (pass, p, workgroups) => {
        pass.setPipeline(p)
        for (let i = 0; i < layers * P; i++) {
          pass.setBindGroup(0, group, [256 * i])
          pass.dispatchWorkgroups(workgroups)
        }
      })
    )
  }
  row("a launch a phase, staged plainly", cells, 60)
  since()
}
end()
