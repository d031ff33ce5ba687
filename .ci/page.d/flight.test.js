// Whole flights on both simulated autopilots, by the machine's own address and by
// localhost: one by clicks, one by sticks.
'use strict'
const { describe, it, before, after } = require('node:test')
const assert = require('node:assert')
const { Browser, until } = require('./browser.js')
const { Mavrest, Relay } = require('./world.js')

const long = 90 // seconds: a takeoff or a landing on a loaded machine
let browser
before(async () => { browser = await Browser.start() })
after(() => browser.end())

// takenOff presses until the drone takes off: ArduPilot can be armed in the mode
// that it starts in before it has the position that a takeoff needs.
async function takenOff(page) {
	await until('the drone takes off', async () => {
		await page.eval(() => say('')) // a refusal may come before anybody looks
		await page.press('#takeoff', () => page.shows('answer', '^Take off: '))
		await page.until('it is answered or flies', () => {
			const text = id => document.getElementById(id).textContent
			return text('mode') === 'takeoff' || !/under way/.test(text('answer'))
		})
		return !/refused/.test(await page.text('answer'))
	}, long)
}

// landed presses until the drone lands: a simulated autopilot that a loaded
// machine kept waiting has failed safe, and a person would press again.
async function landed(page, drone) {
	await until('the drone lands', async () => {
		await page.click('#land')
		await page.shows('answer', '^Land: (?!under way)', long)
		return /^Land: done/.test(await page.text('answer')) || !(await drone.status()).armed
	}, long)
}

// A script that keeps what mavrest answered to the page.
const listening = `{
	const real = fetch
	window.answers = []
	window.fetch = async (...all) => {
		const r = await real(...all)
		r.clone().json().then(a => answers.push(a), () => {})
		return r
	}
}`

const north = (s, from) => (s.position.lat - from.position.lat) * 111319.5

describe('flights', { concurrency: true }, () => {
for (const [device, where, other] of [['sim', 'lan', 'local'], ['sim:ardupilot', 'local', 'lan']]) {
	it(`${device}: a flight by clicks, by its ${where} address`, async t => {
		const drone = await Mavrest.start(device)
		t.after(() => drone.end())
		const page = await browser.open(drone[where] + '/api/drone/status')
		await page.shows('ready', 'can take off', long)
		await page.type('#up', '5')
		await takenOff(page)
		await page.shows('answer', /^Take off: done after \d+ s$/, long)
		assert.strictEqual((await drone.status()).mode, 'takeoff')
		await page.shows('mode', '^takeoff$')
		assert.match(await page.text('armed') + ', ' + await page.text('air'), /^armed, in the air$/)
		assert.ok(Math.abs(parseFloat(await page.text('fact-altitude')) - 5) < 1.5)

		// A place is chosen on the map, and flown to at another height.
		await page.click('#map', { x: 60, y: -60 })
		await page.shows('place', /^Chosen, \d/)
		const [lat, lon] = await page.eval(() => [document.getElementById('lat').value, document.getElementById('lon').value].map(Number))
		await page.type('#altitude', '8')
		await page.click('#goto')
		await page.until('the map shows the target', () => !document.getElementById('target').classList.contains('gone'))
		await page.shows('answer', /^Fly there: done/, long)
		const there = await drone.status()
		assert.ok(Math.hypot(there.position.lat - lat, (there.position.lon - lon) * 0.68) * 111319.5 < 3, `${JSON.stringify(there.position)} is not at ${lat}, ${lon}`)
		assert.ok(Math.abs(there.position.altitude - 8) < 1.5)
		assert.ok(there.position.lat > there.home.lat && there.position.lon > there.home.lon, 'north-east of home, where it was clicked')

		// Land is one tap; a hold ends it, and is one too.
		await page.click('#land')
		await page.shows('mode', '^land$')
		await page.click('#hold')
		await page.shows('answer', /^Hold: done/, long)
		await landed(page, drone)
		await page.shows('armed', '^disarmed$')
		assert.strictEqual((await drone.status()).armed, false)
		assert.deepStrictEqual(page.faults, [])
		assert.deepStrictEqual(page.requests.filter(url => !url.startsWith(drone[where] + '/api/drone/') && !url.startsWith('data:')), [])
		await page.close()
	})

	it(`${device}: a flight by sticks, by its ${other} address`, async t => {
		const drone = await Mavrest.start(device)
		t.after(() => drone.end())
		const page = await browser.open(drone[other] + '/api/drone/status', { width: 400, height: 800, touch: true })
		await drone.armable()
		await until('it takes off', async () => (await drone.post('takeoff', { altitude: 10, wait: 60 })).done, long)
		// Sticks in a hold: mavrest says what is wrong, in its own words.
		const says = (await drone.post('input')).error
		const right = await page.spot('#right'), left = await page.spot('#left')
		await page.touch('touchStart', [left, right])
		await page.until('the page says so too', says => document.getElementById('sticks-answer').textContent === says, [says])
		await page.touch('touchEnd', [])

		await page.click('[data-mode=position]')
		await page.shows('answer', '^Position: done')
		await page.shows('mode', '^position$')
		const from = await drone.status()
		// Both thumbs: forward and up.
		const [l, r] = [await page.spot('#left'), await page.spot('#right')]
		await page.touch('touchStart', [l, r])
		await page.touch('touchMove', [{ ...l, y: l.y - 30 }, { ...r, y: r.y - 45 }])
		await page.shows('by', '^this page')
		await drone.until('it flies north and up', s => north(s, from) > 3 && s.position.altitude > from.position.altitude + 0.7)
		await page.touch('touchEnd', [])
		await drone.until('it stands', s => s.velocity.ground_speed < 0.5 && Math.abs(s.velocity.climb) < 0.3)
		await page.until('nobody moves the sticks', () => document.getElementById('by').textContent === 'nobody')
		assert.deepStrictEqual(await page.eval(() => [...document.querySelectorAll('.stick i')].map(k => k.style.transform)), Array(2).fill('translate(0px, 0px)'))

		// The keys of a laptop: backwards, and a turn.
		assert.ok(await page.eval(() => document.getElementById('keys').checked), 'who asked for the sticks has the keys')
		const then = await drone.status()
		await page.key('down', 'ArrowDown')
		await page.key('down', 'KeyD')
		await drone.until('it flies back and turns', s => north(s, then) < -1.5 && Math.abs(s.position.heading - then.position.heading) > 5)
		await page.key('up', 'ArrowDown')
		await page.key('up', 'KeyD')
		await drone.until('it stands', s => s.velocity.ground_speed < 0.5)
		await landed(page, drone)
		assert.strictEqual((await drone.status()).armed, false)
		assert.deepStrictEqual(page.faults, [])
		await page.close()
	})
}
})

describe('the page and its drone', { concurrency: true }, () => {
it('a refused arming shows its reason', async t => {
	for (const device of ['sim', 'sim:ardupilot']) {
		const drone = await Mavrest.start(device)
		t.after(() => drone.end())
		await drone.armable()
		// Neither autopilot can be armed in its return.
		await drone.post('mode', { mode: 'rtl' })
		const page = await browser.open(drone.lan + '/api/drone/status', { scripts: [listening] })
		await page.shows('mode', '^rtl$')
		await page.press('#arm', () => page.shows('answer', '^Arm: (?!under way)'))
		const { error, code } = await page.eval(() => answers[0])
		assert.strictEqual(code, 'refused')
		assert.match(error, device === 'sim' ? /Resolve system health failures first/ : /RTL mode not armable|Need Position/)
		assert.strictEqual(await page.text('answer'), 'Arm: ' + error)
		assert.ok(await page.eval(() => document.getElementById('answer').classList.contains('bad')))
		// All of it is to be seen.
		assert.ok(await page.eval(() => { const a = document.getElementById('answer'); return a.scrollWidth <= a.clientWidth && a.scrollHeight <= a.clientHeight }))
		await page.close()
	}
})

it('two pages on one drone: the newer command wins, and the older page says so', async t => {
	const drone = await Mavrest.start()
	t.after(() => drone.end())
	await drone.armable()
	const older = await browser.open(drone.lan + '/api/drone/status'), newer = await browser.open(drone.local + '/api/drone/status')
	await older.type('#up', '50')
	await older.press('#takeoff', () => older.shows('mode', '^takeoff$'))
	await drone.until('it climbs', s => s.position.altitude > 1)
	await newer.click('#hold')
	await newer.shows('answer', '^Hold: done', long)
	await older.shows('answer', '^Take off: .*a newer command')
	for (const page of [older, newer]) {
		await page.shows('mode', '^hold$')
		assert.deepStrictEqual(page.faults, [])
		await page.close()
	}
})

it('the stream cut, and the program restarted: a banner, and back by itself', async t => {
	let drone = await Mavrest.start()
	t.after(() => drone.end())
	const relay = await Relay.start(drone.port)
	t.after(() => relay.end())
	await drone.armable()
	const page = await browser.open(relay.url)
	const since = /^No word from mavrest since \d\d:\d\d:\d\d\. What you see is old\.$/
	await page.shows('fact-altitude', 'm$')
	for (const how of ['cut', 'still']) {
		relay.set(how)
		await page.shows('banner', since)
		await page.until('all is grey', () => document.querySelectorAll('#list .old').length === 9)
		await page.shows('fact-altitude-below', /\d+\ss old/)
		// A button tells that nobody answers.
		if (how === 'cut') {
			await page.click('#hold')
			await page.shows('answer', 'mavrest did not answer')
		}
		relay.set('up')
		await page.shows('banner', '^$')
		await page.until('nothing is grey', () => document.querySelectorAll('#list .old').length === 0)
	}
	await page.press('#arm', () => page.shows('armed', '^armed$'))
	await drone.end()
	relay.set('cut')
	await page.shows('banner', since)
	drone = await Mavrest.start()
	relay.port = drone.port
	relay.set('up')
	await page.shows('banner', '^$')
	await page.shows('armed', '^disarmed$')
	await page.shows('mode', '^manual$')
	assert.deepStrictEqual(page.faults, [])
	await page.close()
})

it('a page of another origin can neither frame the page nor command the drone', async t => {
	const drone = await Mavrest.start()
	t.after(() => drone.end())
	await drone.armable()
	const at = drone.lan + '/api/drone/'
	const server = require('node:http').createServer((q, r) => {
		r.writeHead(200, { 'Content-Type': 'text/html' }).end(`<title>stranger</title><iframe src="${at}status"></iframe>`)
	})
	await new Promise(done => server.listen(0, done))
	t.after(() => { server.close(); server.closeAllConnections() })
	const page = await browser.open(`http://localhost:${server.address().port}/`)
	await until('the browser refuses the frame', () => page.logged.some(text => /frame-ancestors/.test(text)))
	// What is in the frame instead is the browser's own.
	const { targetInfos } = await browser.send('Target.getTargets')
	const { targetId } = targetInfos.find(t => t.type === 'iframe' && t.url.startsWith(at))
	const { sessionId } = await browser.send('Target.attachToTarget', { targetId, flatten: true })
	const { result } = await browser.send('Runtime.evaluate', { expression: `document.querySelectorAll('#mode, #hold').length` }, sessionId)
	assert.strictEqual(result.value, 0)
	const seen = await page.eval(async at => {
		const ask = (path, options) => fetch(at + path, options).then(r => r.type, e => e.name)
		return [
			await ask('takeoff', { method: 'POST', body: '{}' }),
			await ask('takeoff', { method: 'POST', body: '{}', mode: 'no-cors' }),
			await ask('takeoff', { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json' } }),
			await ask('status', {}),
		]
	}, at)
	assert.deepStrictEqual(seen, ['TypeError', 'opaque', 'TypeError', 'TypeError'])
	const s = await drone.status()
	assert.deepStrictEqual([s.mode, s.armed], ['manual', false])
	// The way in that a browser has instead: / leads to the page.
	const visitor = await browser.open(drone.lan + '/')
	await visitor.click('a')
	await visitor.until('the page', () => document.getElementById('mode')?.textContent === 'manual')
	assert.deepStrictEqual(visitor.faults, [])
	await page.close()
	await visitor.close()
})
})
