// Whole flights on both simulated autopilots, by clicks, sticks and keys. The page is
// opened by the machine's own address and by localhost.
'use strict'
const { describe, it, before, after } = require('node:test')
const assert = require('node:assert')
const fs = require('node:fs')
const { Browser, until } = require('./browser.js')
const { Mavrest, Relay } = require('./world.js')

const three = 3 // drones and their windows at once: two cores can draw so many in time
const long = 90 // seconds: a takeoff or a landing on a loaded machine
let browser
before(async () => { browser = await Browser.start() })
after(() => browser.end())

// takenOff presses until the drone takes off. The status may be a second old: a takeoff
// that is still refused is tried again.
async function takenOff(page) {
	await until('the drone takes off', async () => {
		await page.eval(() => say('')) // a refusal may come before anybody looks
		await page.press('#takeoff', () => page.shows('answer', '^Take off: '))
		await page.until('it is answered or flies', () => {
			const text = id => document.getElementById(id).textContent
			return text('fact-mode') === 'takeoff' || !/under way/.test(text('answer'))
		})
		return !/refused/.test(await page.text('answer'))
	}, long)
}

// landed presses until the drone lands. On a loaded machine the simulated autopilot may
// fail safe and end the landing. Then a person would press again.
async function landed(page, drone) {
	await until('the drone lands', async () => {
		await page.click('#land')
		await page.shows('answer', '^Land: (?!under way)', long)
		return /^Land: done/.test(await page.text('answer')) || !(await drone.status()).armed
	}, long)
}

// listening is a script that keeps mavrest's answers to the page.
const listening = `{
	const real = fetch
	window.fromMavrest = []
	window.fetch = async (...all) => {
		const r = await real(...all)
		r.clone().json().then(a => fromMavrest.push(a), () => {})
		return r
	}
}`

// Keyboard is a person who has nothing else.
class Keyboard {
	constructor(page) { this.page = page }

	focused() {
		return this.page.eval(() => {
			const e = document.activeElement
			return e.id || e.dataset.mode || e.textContent.trim()
		})
	}

	async stroke(code) {
		await this.page.key('down', code)
		await this.page.key('up', code)
	}

	// tab goes on until something has the focus, and is seen on the screen.
	async tab(name) {
		await until('Tab comes to ' + name, async () => {
			await this.stroke('Tab')
			return await this.focused() === name
		})
		const seen = await this.page.eval(() => {
			const b = document.activeElement.getBoundingClientRect()
			return b.bottom > 0 && b.right > 0 && b.top < innerHeight && b.left < innerWidth
		})
		assert.ok(seen, name + ' has the focus and is not on the screen')
	}

	// hold keeps a key down until something is so.
	async hold(code, so) {
		await this.page.key('down', code)
		try {
			await so()
		} finally {
			await this.page.key('up', code)
		}
	}
}

const north = (s, from) => (s.position.lat - from.position.lat) * 111319.5

describe('flights', { concurrency: three }, () => {
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
		await page.shows('fact-mode', '^takeoff$')
		await page.shows('doing', '^Holding$')
		assert.ok(Math.abs(parseFloat(await page.text('fact-altitude')) - 5) < 1.5)

		// Chooses a place on the map, and flies there at another height.
		await page.click('#map', { x: 60, y: -60 })
		await page.until('how far it is', () => /^[0-9.]+.m · stay at [45]/.test(document.querySelector('#goto small').textContent))
		const [lat, lon] = await page.eval(() => [document.getElementById('lat').value, document.getElementById('lon').value].map(Number))
		await page.type('#altitude', '8')
		await page.click('#goto')
		await page.shows('doing', /^Flying to the target, \d/)
		await page.until('the map shows the target', () => !document.getElementById('target').classList.contains('gone'))
		await page.shows('answer', /^Fly there: done/, long)
		const there = await drone.status()
		assert.ok(Math.hypot(there.position.lat - lat, (there.position.lon - lon) * 0.68) * 111319.5 < 3, `${JSON.stringify(there.position)} is not at ${lat}, ${lon}`) // 0.68: the cosine of the latitude
		assert.ok(Math.abs(there.position.altitude - 8) < 1.5)
		assert.ok(there.position.lat > there.home.lat && there.position.lon > there.home.lon, 'north-east of home, where it was clicked')

		// One tap lands, and one tap holds, which ends the landing.
		await page.click('#land')
		await page.shows('fact-mode', '^land$')
		await page.click('#hold')
		await page.shows('answer', /^Hold: done/, long)
		await landed(page, drone)
		await page.shows('fact-motors', '^disarmed$')
		assert.strictEqual((await drone.status()).armed, false)
		await page.shows('doing', '^Landed$')
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
		await page.until('the page says so too', says => document.getElementById('answer').textContent.toLowerCase().startsWith(plain(says).toLowerCase()), [says])
		await page.touch('touchEnd', [])

		await page.click('[data-mode=position]')
		await page.shows('answer', '^Position: done')
		await page.shows('fact-mode', '^position$')
		const from = await drone.status()
		// Both thumbs: forward and up.
		const [l, r] = [await page.spot('#left'), await page.spot('#right')]
		await page.touch('touchStart', [l, r])
		await page.touch('touchMove', [{ ...l, y: l.y - 30 }, { ...r, y: r.y - 45 }])
		await page.shows('by', '^this page')
		await drone.until('it flies north and up', s => north(s, from) > 3 && s.position.altitude > from.position.altitude + 0.7)
		await page.touch('touchEnd', [])
		await drone.until('it has stopped', s => s.velocity.ground_speed < 0.5 && Math.abs(s.velocity.climb) < 0.3)
		await page.until('nobody moves the sticks', () => document.getElementById('by').textContent === 'nobody, move one')
		assert.deepStrictEqual(await page.eval(() => [...document.querySelectorAll('.stick i')].map(k => k.style.transform)), Array(2).fill('translate(0%, 0%)'))

		// The keys of a laptop: backwards, and a turn.
		assert.ok(await page.eval(() => document.getElementById('keys').checked), 'the page that set a stick mode may use the keys')
		const then = await drone.status()
		await page.key('down', 'ArrowDown')
		await page.key('down', 'KeyD')
		await drone.until('it flies back and turns', s => north(s, then) < -1.5 && Math.abs(s.position.heading - then.position.heading) > 5)
		await page.key('up', 'ArrowDown')
		await page.key('up', 'KeyD')
		await drone.until('it has stopped', s => s.velocity.ground_speed < 0.5)
		await landed(page, drone)
		assert.strictEqual((await drone.status()).armed, false)
		assert.deepStrictEqual(page.faults, [])
		await page.close()
	})
}
})

describe('the page and its drone', { concurrency: three }, () => {
it('a refused arming shows its reason', async t => {
	for (const device of ['sim', 'sim:ardupilot']) {
		const drone = await Mavrest.start(device)
		t.after(() => drone.end())
		await drone.armable()
		// Neither autopilot can be armed in its return.
		await drone.post('mode', { mode: 'rtl' })
		const page = await browser.open(drone.lan + '/api/drone/status', { scripts: [listening] })
		await page.shows('fact-mode', '^rtl$')
		await page.eval(() => { document.getElementById('more').open = true })
		await page.press('#arm', () => page.shows('answer', '^Arm: (?!under way)'))
		const { error, code } = await page.eval(() => fromMavrest[0])
		assert.strictEqual(code, 'refused')
		assert.match(error, device === 'sim' ? /Resolve system health failures first/ : /RTL mode not armable|Need Position/)
		assert.strictEqual(await page.text('answer'), 'Arm: ' + await page.eval(error => plain(error), error))
		assert.ok(await page.eval(() => document.getElementById('answer').classList.contains('bad')))
		// Nothing is cut off.
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
	await older.press('#takeoff', () => older.shows('fact-mode', '^takeoff$'))
	await drone.until('it climbs', s => s.position.altitude > 1)
	await newer.click('#hold')
	await newer.shows('answer', '^Hold: done', long)
	await older.shows('answer', '^Take off: .*a newer command')
	for (const page of [older, newer]) {
		await page.shows('fact-mode', '^hold$')
		assert.deepStrictEqual(page.faults, [])
		await page.close()
	}
})

// On each screen, and on two of them with large text, a keyboard alone flies.
for (const [screen, width, height, touch, text] of [
	['a phone', 390, 844, true, '100%'],
	['a small phone', 320, 568, true, '100%'],
	['a phone sideways', 844, 390, true, '100%'],
	['a tablet', 768, 1024, true, '100%'],
	['a laptop', 1280, 800, false, '100%'],
	['a phone with text of 200 %', 390, 844, true, '200%'],
	['a laptop with text of 200 %', 1280, 800, false, '200%'],
]) {
	it(`a flight by keyboard alone, on ${screen}`, async t => {
		const drone = await Mavrest.start()
		t.after(() => drone.end())
		await drone.armable()
		const page = await browser.open(drone.lan + '/api/drone/status', { width, height, touch })
		await page.eval(text => { document.documentElement.style.fontSize = text }, text)
		await page.shows('ready', 'can take off', long)
		const keyboard = new Keyboard(page)

		await keyboard.tab('takeoff')
		await keyboard.hold('Enter', () => page.shows('doing', '^Taking off'))
		await page.shows('answer', '^Take off: done', long)

		// A place 20 m to the north: the map's place in numbers. Its height is another one.
		const { home } = await drone.status()
		await keyboard.tab('A place in numbers')
		await keyboard.stroke('Enter')
		for (const [field, value] of [['lat', home.lat + 20 / 111319.5], ['lon', home.lon]]) {
			await keyboard.tab(field)
			await page.send('Input.insertText', { text: String(value).replace('.', ',') })
		}
		await keyboard.tab('altitude')
		await page.send('Input.insertText', { text: '12' })
		await keyboard.stroke('Enter')
		await page.shows('doing', '^Flying to the target')
		await page.shows('answer', '^Fly there: done', long)
		assert.ok(Math.abs((await drone.status()).position.altitude - 12) < 1.5)

		await keyboard.tab('position')
		await keyboard.stroke('Enter')
		await page.shows('answer', '^Position: done')
		const from = await drone.status()
		await keyboard.hold('ArrowUp', () => drone.until('it flies north', s => north(s, from) > 2))
		await keyboard.stroke('Escape')
		await page.shows('answer', '^Hold: done', long)

		await keyboard.tab('land')
		await keyboard.stroke('Enter')
		await page.shows('doing', '^Landed$', long)
		assert.deepStrictEqual(page.faults, [])
		await page.close()
	})
}

it('two pages that both move sticks: the one that came first has them, and each says who', async t => {
	const drone = await Mavrest.start()
	t.after(() => drone.end())
	await drone.armable()
	await until('it takes off', async () => (await drone.post('takeoff', { altitude: 10, wait: 60 })).done, long)
	const first = await browser.open(drone.lan + '/api/drone/status'), second = await browser.open(drone.local + '/api/drone/status')
	const hold = async (page, x, so) => {
		const at = await page.spot('#right')
		await page.mouse('mousePressed', at)
		await page.mouse('mouseMoved', { x: at.x + x, y: at.y })
		try { await so() } finally { await page.mouse('mouseReleased', at) }
	}
	const contest = async () => {
		await first.click('[data-mode=position]')
		await first.shows('answer', '^Position: done')
		await hold(first, 80, async () => {
			await first.shows('by', '^this page$')
			await second.shows('by', '^another client, [0-9.]+$')
			await hold(second, -80, () => second.shows('answer', '^Another client \\([0-9.]+\\) has the sticks; press Position to take them\\. Release the sticks'))
			assert.notStrictEqual((await drone.status()).input.from, '127.0.0.1')
			await second.click('[data-mode=position]')
			await second.shows('by', '^this page$')
			await first.shows('answer', 'Release the sticks, then move them again')
			await first.shows('by', '^another client, 127.0.0.1$')
			await hold(second, -80, () => drone.until('it rolls left', s => s.attitude.roll < -3))
		})
	}
	// A page that a loaded machine keeps from sending for 0.4 s has given its sticks up.
	await contest().catch(contest).catch(contest)
	for (const page of [first, second]) {
		assert.deepStrictEqual(page.faults, [])
		await page.close()
	}
})

it('a goto that an outage held up, and the page gave up, does not fly when the network is back', async t => {
	const drone = await Mavrest.start()
	t.after(() => drone.end())
	await drone.armable()
	await until('it takes off', async () => (await drone.post('takeoff', { altitude: 10, wait: 60 })).done, long)
	const relay = await Relay.start(drone.port)
	t.after(() => relay.end())
	const page = await browser.open(relay.url)
	await page.shows('doing', '^Holding$')
	await page.click('#map', { x: 40, y: -40 })
	relay.stall()
	await page.eval(() => document.getElementById('goto').click())
	await page.shows('answer', '^Fly there: no answer')
	await page.click('#hold')
	await page.shows('answer', '^Hold: under way')
	// What the relay held back arrives all at once, as after an outage.
	drone.process.kill('SIGSTOP')
	await relay.flow()
	drone.process.kill('SIGCONT')
	await page.shows('answer', '^Hold: done')
	await page.shows('banner', '^$')
	assert.match(drone.log, /route=\/api\/drone\/mode .*hold/)
	// It was refused, if mavrest heard of it at all.
	assert.doesNotMatch(drone.log, /msg=(request|"command [a-z]+") .*route=\/api\/drone\/goto/)
	assert.ok(((await drone.status()).target?.distance ?? 0) <= 5, 'it does not fly to a far target')
	assert.deepStrictEqual(page.faults, [])
	await page.close()
})

it('the stream cut, and the program restarted: a banner, and back by itself', async t => {
	let drone = await Mavrest.start()
	t.after(() => drone.end())
	const relay = await Relay.start(drone.port)
	t.after(() => relay.end())
	await drone.armable()
	const page = await browser.open(relay.url)
	const since = /^No contact with mavrest since \d\d:\d\d:\d\d\. What you see is old\.$/
	await page.shows('fact-altitude', 'm$')
	for (const how of ['cut', 'still']) {
		relay.set(how)
		await page.shows('banner', since)
		await page.until('all is grey', () => document.querySelectorAll('dl .old').length === 12)
		await page.until('how old', () => /\d+\ss old/.test(document.getElementById('fact-altitude').nextElementSibling.textContent))
		// A button's answer says that there was no answer.
		if (how === 'cut') {
			await page.click('#hold')
			await page.shows('answer', 'Hold: no answer')
		}
		relay.set('up')
		await page.shows('banner', '^$')
		await page.until('nothing is grey', () => document.querySelectorAll('dl .old').length === 0)
	}
	await page.eval(() => { document.getElementById('more').open = true })
	await page.press('#arm', () => page.shows('fact-motors', '^armed$'))
	await drone.end()
	relay.set('cut')
	await page.shows('banner', since)
	drone = await Mavrest.start()
	relay.port = drone.port
	relay.set('up')
	await page.shows('banner', '^$')
	await page.shows('fact-motors', '^disarmed$')
	await page.shows('fact-mode', '^manual$')
	assert.deepStrictEqual(page.faults, [])
	await page.close()
})

it('the page offers the description of the API that its own mavrest has', async t => {
	const drone = await Mavrest.start()
	t.after(() => drone.end())
	const page = await browser.open(drone.lan + '/api/drone/status')
	await page.shows('fact-mode', '^manual$')
	await page.eval(() => {
		document.getElementById('more').open = true
		const link = URL.createObjectURL
		URL.createObjectURL = file => { file.text().then(text => { window.offered = text }); return link(file) }
	})
	await page.click('#contract')
	await page.until('the description', () => window.offered)
	const contract = fs.readFileSync(__dirname + '/../../docs/openapi.yaml', 'utf8')
	assert.strictEqual(await page.eval(() => window.offered), contract)
	await page.eval(() => { window.fetch = () => Promise.reject(new TypeError()) })
	await page.click('#contract')
	await page.shows('answer', 'API description: no answer')
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
	// The frame has the browser's own error page instead.
	const { targetInfos } = await browser.send('Target.getTargets')
	const { targetId } = targetInfos.find(t => t.type === 'iframe' && t.url.startsWith(at))
	const { sessionId } = await browser.send('Target.attachToTarget', { targetId, flatten: true })
	const { result } = await browser.send('Runtime.evaluate', { expression: `document.querySelectorAll('#doing, #hold').length` }, sessionId)
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
	// A browser gets to the page from /.
	const visitor = await browser.open(drone.lan + '/')
	await visitor.click('a')
	await visitor.until('the page', () => document.getElementById('fact-mode')?.textContent === 'manual')
	assert.deepStrictEqual(visitor.faults, [])
	await page.close()
	await visitor.close()
})
})
