import { Model } from "@tg/node"

await using model = await Model.open(process.argv[2] ?? "apps/cli/models/tg-tiny-Q4_0.gguf")
const messages = [{ role: "user", content: "What is 17 + 25?" }]
for await (const text of model.chat(messages)) process.stdout.write(text)
process.stdout.write("\n")
