// Long work that users asked for: how far each job is, cancelling it, why it failed. A part of the pages that start such jobs.

import { useEffect, useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Badge, Card, Meter, Time, toast } from "../components.mjs"
import { duration, exact } from "../format.mjs"
import { html } from "../html.mjs"

const STATES = { running: ["info", "running"], done: ["good", "done"], cancelled: ["warn", "cancelled"], failed: ["bad", "failed"] }
const MOST = 5

/**
 * The jobs with `isShown(job)` that run, and those that ended in the last `minutes`; nothing where there are none. `onEnd`
 * is called when one of them ends; `detail(job)` gives more of one.
 */
export function Jobs({ title, isShown, minutes = 10, onEnd, detail }) {
  const jobs = usePolled("jobs", { everyMs: 1000 })
  const [known, setKnown] = useState(null)
  const shown = (jobs.data ?? []).filter(isShown)
  const ended = jobs.data && shown.filter((job) => job.state !== "running").map((job) => job.id).join(" ")
  useEffect(() => {
    // Not by the jobs that were running: a short one is over before it was ever seen.
    if (known !== null && known !== ended) onEnd?.()
    setKnown(ended)
  }, [ended])
  const recent = shown.filter((job) => job.state === "running" || Date.now() - job.ended_ms < minutes * 60_000).slice(-MOST).reverse()
  if (!recent.length) return null
  const cancel = async (job) => {
    try {
      await ask(named`jobs/${job.id}`, { method: "DELETE" })
      toast("Cancelled: what was done stays done.")
    } catch (problem) {
      toast(problem.message, "bad")
    }
    jobs.reload()
  }
  return html`<${Card} title=${title} note=${`now and in the last ${duration(minutes * 60_000)}`}>
    <ul class="jobs" aria-label=${title}>
      ${recent.map((job) => {
        const [tone, text] = STATES[job.state] ?? ["plain", job.state]
        return html`<li key=${job.id}>
          <div class="job-head">
            <${Badge} tone=${tone}>${text}</${Badge}><span><bdi>${job.subject}</bdi></span>
            <span class="note"><bdi>${job.user}</bdi>, <${Time} ms=${job.started_ms} />${job.rate_per_s && `, at most ${exact(job.rate_per_s)} a second`}</span>
            ${job.state === "running" && html`<button type="button" class="quiet" onClick=${() => cancel(job)}>Cancel<span class="sr-only"> <bdi>${job.subject}</bdi></span></button>`}
          </div>
          ${detail ? detail(job) : html`<${Done} of=${job} />`}
          ${job.error && html`<p class="note"><bdi>${job.error}</bdi></p>`}
        </li>`
      })}
    </ul>
  </${Card}>`
}

function Done({ of }) {
  return html`<${Meter} label=${of.failed ? `${exact(of.failed)} stay dead letters` : "resubmitted"} tone=${of.failed ? "warn" : undefined} share=${of.total ? (of.done + of.failed) / of.total : 1} text=${`${exact(of.done)} of ${exact(of.total)}`} />`
}
