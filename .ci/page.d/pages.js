// A page in a browser, on a fake server whose status and answers the test chooses. A test
// file that requires this has one browser, and the status of a real flight.
'use strict'
const { before, after } = require('node:test')
const assert = require('node:assert')
const { Browser, until } = require('./browser.js')
const { Mavrest, Fake, thePage, stopped } = require('./world.js')

let browser, html
const real = {} // the status of a real flight
before(async () => {
	browser = await Browser.start()
	const drone = await Mavrest.start()
	html = await thePage(drone)
	await drone.armable()
	await drone.post('takeoff', { altitude: 5 })
	Object.assign(real, await drone.until('it flies', s => s.position?.altitude > 1 && s.home))
	delete real.time // unknown: a page can't tell how late an event is
	await drone.end()
})
after(() => browser.end())

// status is the real one, with the test's changes.
const status = (more = {}) => ({ ...structuredClone(real), ...more })

// world opens a page on a fake server of its own, and waits for its first status.
async function world(t, first = status(), options = {}, chromium = browser) {
	const fake = await Fake.start(html)
	fake.say(first)
	const page = await chromium.open(fake.url, options)
	// Like mavrest's stream it is never silent, unless the test has stopped the clock.
	const talk = setInterval(() => { if (!options.scripts?.includes(stopped)) fake.say(fake.last) }, 300)
	t.after(async () => {
		clearInterval(talk)
		await page.close()
		fake.end()
		assert.deepStrictEqual(page.faults, [])
		assert.deepStrictEqual(fake.posts.filter(p => Object.values(p.body).includes(null)), [], 'null is no value')
	})
	await until('the stream', () => fake.streams.size === 1)
	await page.until('a status', () => document.getElementById('link').textContent !== '')
	// shown sends a status and waits until the page shows it.
	let n = 0
	const shown = async s => {
		fake.say({ ...s, link: { ...s.link, sent: ++n + 1e6 } })
		await page.shows('link', `\\b${n + 1e6} sent`)
	}
	return { fake, page, shown }
}

// opened unfolds the details.
const opened = page => page.eval(() => { for (const d of document.querySelectorAll('details')) d.open = true })

const run = (page, ms) => page.eval(ms => window.run(ms), ms)

// runLive lets the page's clock run while events come, as mavrest's do.
const runLive = (page, ms) => page.eval(ms => {
	for (; ms > 0; ms -= 100) {
		heard = now()
		window.run(100)
	}
}, ms)

// nulled returns the object with every field null.
const nulled = o => Object.fromEntries(Object.keys(o).map(key => [key, null]))

module.exports = { real, status, world, opened, run, runLive, nulled }
