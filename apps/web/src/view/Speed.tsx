/** How fast this device is: tokens a second, launches, the time of each kernel. */
import type { Gauged } from "@tg/web/Protocol"
import * as Sizes from "../Sizes.ts"
import * as Trials from "../Trials.ts"

const methods = {
  each: "each launch timed by itself, in its place",
  clock: "what more of a kernel adds to a step, on the device's own clock",
  extra: "what more of a kernel adds to a step; the browser gives no clock of the device"
} as const

const columns = ["Kernel", "Calls", "µs", "Share", "GB/s", "Where"] as const

const Kernels = ({ kernels, method }: Gauged) => (
  // it scrolls, so that it can be reached by keys
  <div class="scroll" role="region" aria-label="Kernels" tabIndex={0}>
    <table>
      <caption>Time of each kernel of a token: {methods[method]}</caption>
      <thead>
        <tr>{columns.map((name) => <th key={name} scope="col">{name}</th>)}</tr>
      </thead>
      <tbody>
        {kernels.map(({ calls, gbPerSecond, name, share, sites, us }) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{calls}</td>
            <td>{us.toFixed(1)}</td>
            <td>
              <meter min={0} max={1} value={share} aria-label={`Share of ${name}`} /> {(100 * share).toFixed(1)}%
            </td>
            <td>{gbPerSecond.toFixed(2)}</td>
            <td>{sites}</td>
          </tr>
        ))}
      </tbody>
    </table>
  </div>
)

export const Speed = () => {
  const { busy, gauged } = Trials
  const { value } = gauged
  return (
    <section aria-labelledby="speed-title">
      <h2 id="speed-title">Speed</h2>
      <p>tg-tiny, the model that comes with this page, writes a text; then each kernel of a token is timed.</p>
      <button type="button" class="primary" disabled={busy.value !== undefined} onClick={() => void Trials.measure()}>
        {busy.value === "measuring" ? "Measuring…" : "Measure"}
      </button>
      {value === undefined ? null : (
        <>
          <div role="group" aria-label="Figures">
            <dl class="figures">
              <div>
                <dt>tokens a second</dt>
                <dd>{value.tokensPerSecond.toFixed(value.tokensPerSecond < 100 ? 1 : 0)}</dd>
              </div>
              <div>
                <dt>launches a token</dt>
                <dd>{Sizes.count(value.launches)}</dd>
              </div>
              <div>
                <dt>ms a step</dt>
                <dd>{(value.stepMicros / 1000).toFixed(2)}</dd>
              </div>
            </dl>
          </div>
          <p class="hint">{value.model} on {value.device.name}: {value.device.why}.</p>
          <Kernels {...value} />
        </>
      )}
    </section>
  )
}
