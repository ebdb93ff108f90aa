import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { pathToFileURL } from "node:url"
import { afterAll, assert, it } from "vitest"
import { type Named, withOwnNames } from "../src/NodeNaming.ts"

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-naming-"))
afterAll(() => fs.rmSync(folder, { recursive: true }))

const modules: ReadonlyArray<Named> = [
  { file: "shared.js", text: `const a=1,b=()=>a+1;export{b as n,a as t,a as r};` },
  { file: "later.js", text: `import{t as e}from"./shared.js";const c=e+40;export{c as t};` },
  { file: "whole.js", text: `const d=7;export{d as t};` },
  {
    file: "main.js",
    text: `import{n as e,r as b,t as n}from"./shared.js";import*as w from"./whole.js";` +
      `const r=async()=>[e(),n,b,(await import("./later.js")).t,w.t],x=5;export{r as answers,x as i};`
  },
  {
    file: "page.js",
    text: `import{answers as a,i as b}from"./main.js";const z=async()=>[...await a(),b];export{z as all};`
  }
]

it("modules give each other what they have under the names that it has inside", async () => {
  const named = withOwnNames(modules)
  const textOf = (file: string) => named.find((module) => module.file === file)!.text
  assert.match(textOf("shared.js"), /export\{a,b\};$/)
  assert.include(textOf("main.js"), `import{a as b,a as n,b as e}from"./shared.js"`)
  // who imports an entry knows the names that its source gives
  assert.match(textOf("main.js"), /export\{r as answers,x\};$/)
  // these are looked up when they are there
  assert.match(textOf("later.js"), /export\{c as t\};$/)
  assert.match(textOf("whole.js"), /export\{d as t\};$/)
  fs.writeFileSync(path.join(folder, "package.json"), `{"type":"module"}`)
  for (const { file, text } of named) fs.writeFileSync(path.join(folder, file), text)
  const { all } = await import(pathToFileURL(path.join(folder, "page.js")).href)
  assert.deepEqual(await all(), [2, 1, 1, 41, 7, 5])
})
