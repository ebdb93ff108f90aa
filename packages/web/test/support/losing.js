/** The engine's worker, with devices that can be lost: each message on the channel destroys the one in use. */
const devices = []
const { requestDevice } = GPUAdapter.prototype
GPUAdapter.prototype.requestDevice = async function(...args) {
  const device = await requestDevice.apply(this, args)
  devices.push(device)
  return device
}
new BroadcastChannel("lose").addEventListener("message", () => devices.at(-1)?.destroy())
await import("../bundle/worker.js")
