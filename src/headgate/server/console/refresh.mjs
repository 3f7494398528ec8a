// When the lists are asked again: one request at a time, and the next round some seconds after the last answer, so a slow
// server is never asked faster than it answers.

export class Refresher {
  #ask
  #wanted
  #answered
  #intervalMs
  #setTimer
  #clearTimer
  #isOn = false
  #isDue = false
  #round = null
  #timer = null

  /**
   * `wanted()` gives the lists of a round, `ask(list, signal)` a promise of an answer that is never refused, and
   * `answered(list, answer)` whether to go on with the round.
   */
  constructor({ ask, wanted, answered, intervalMs, setTimer, clearTimer }) {
    this.#ask = ask
    this.#wanted = wanted
    this.#answered = answered
    this.#intervalMs = intervalMs
    this.#setTimer = setTimer
    this.#clearTimer = clearTimer
  }

  /** Ask now, and again and again. */
  start() {
    if (this.#isOn) return
    this.#isOn = true
    this.#begin()
  }

  /** Ask no more; what is under way is given up. */
  stop() {
    this.#isOn = this.#isDue = false
    this.#clearTimer(this.#timer)
    this.#round?.abort()
    this.#round = null
  }

  /** Other lists are wanted: begin a round, after the answer that is waited for if there is one. */
  now() {
    if (!this.#isOn) return
    if (this.#round) {
      this.#isDue = true
    } else {
      this.#clearTimer(this.#timer)
      this.#begin()
    }
  }

  async #begin() {
    const round = (this.#round = new AbortController())
    this.#isDue = false
    try {
      for (const list of this.#wanted()) {
        const answer = await this.#ask(list, round.signal)
        if (round.signal.aborted || !this.#answered(list, answer) || this.#isDue) break
      }
    } finally {
      if (this.#round === round) {
        this.#round = null
        this.#timer = this.#setTimer(() => this.#begin(), this.#isDue ? 0 : this.#intervalMs)
      }
    }
  }
}
