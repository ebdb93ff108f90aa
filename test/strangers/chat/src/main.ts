import { answer } from "./answer.ts"

process.stdout.write(`${await answer("model.gguf", "What is 17 + 25?")}\n`)
