import * as DType from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"

const operators: Readonly<Record<string, string>> = {
  ADD: "+",
  SUB: "-",
  MUL: "*",
  FDIV: "/",
  FLOORDIV: "//",
  FLOORMOD: "%",
  AND: "&",
  OR: "|",
  XOR: "^",
  SHL: "<<",
  SHR: ">>",
  CMPLT: "<",
  CMPEQ: "==",
  CMPNE: "!="
}

/** A linear kernel as a program text: one line for each instruction that does something, indented by its loops. */
export const listing = (linear: UOp): ReadonlyArray<string> => {
  const names = new Map<UOp, string>()
  const lines: Array<string> = []
  let depth = 0
  const name = (node: UOp): string => names.get(node) ?? "?"
  const write = (text: string): void => void lines.push("  ".repeat(depth) + text)
  const define = (node: UOp, prefix: string, text: string): void => {
    const own = `${prefix}${[...names.values()].filter((n) => new RegExp(`^${prefix}\\d+$`).test(n)).length}`
    names.set(node, own)
    write(`${own}: ${DType.print(node.dtype)} = ${text}`)
  }
  for (const node of linear.src) {
    const src = node.src.map(name)
    const arg = node.arg as { readonly [key: string]: unknown }
    switch (node.op) {
      case "CONST":
        names.set(node, String(node.arg))
        break
      case "VAR":
      case "SPECIAL":
        names.set(node, String(arg["name"]))
        if (node.op === "SPECIAL") write(`${arg["name"]} < ${src[0]}`)
        break
      case "PARAM":
        names.set(node, `p${arg["slot"]}`)
        break
      case "LOCAL":
        define(node, "shared", `${arg["length"]} elements`)
        break
      case "REG":
        define(node, "reg", src[0]!)
        break
      case "RANGE":
        names.set(node, `r${Number(arg["id"]) < 1000 ? arg["id"] : "_threads"}`)
        write(`for ${name(node)} < ${src[0]} ${arg["axis"]}`)
        depth++
        break
      case "END":
        depth--
        break
      case "INDEX":
        names.set(node, `${src[0]}[${src[1]}${src[2] === undefined ? "" : ` if ${src[2]}`}]`)
        break
      case "LOAD":
        define(node, "v", src[0]!)
        break
      case "STORE":
        write(`${src[0]} = ${src[1]}`)
        break
      case "ACCUMULATE":
        write(`${src[0]} = ${src[0]} ${arg["op"]} ${src[1]}`)
        break
      case "BARRIER":
        write("barrier")
        break
      case "SUBGROUP_REDUCE":
        define(node, "v", `subgroup ${arg["op"]} of ${arg["threads"]} threads: ${src[0]}`)
        break
      case "LANE":
        names.set(node, `${src[0]}.${"xyzw"[node.arg as number]}`)
        break
      default: {
        const operator = operators[node.op]
        define(
          node,
          node.dtype === DType.index ? "i" : "v",
          operator === undefined
            ? `${node.op.toLowerCase()}(${src.join(", ")})`
            : src.join(` ${operator} `)
        )
      }
    }
  }
  return lines
}
