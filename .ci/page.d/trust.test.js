// What a first flyer must be able to trust: the page neither misleads nor falls silent in the air.
'use strict'
const { describe, it } = require('node:test')
const assert = require('node:assert')
const fs = require('node:fs')
const path = require('node:path')
const { until, sleep } = require('./browser.js')
const { stopped } = require('./world.js')
const { real, status, world, opened, run, runLive } = require('./pages.js')

const refusing = (error, code = 'refused') => (path, body, r) => r.writeHead(409).end(JSON.stringify({ error, code }))
const air = altitude => status({ mode: 'hold', done: true, in_air: true, target: null, position: { ...real.position, altitude, age: 0 } })
const north = metres => [String(real.position.lat + metres / 111319.5), String(real.position.lon)]
const goto = page => page.eval(() => document.getElementById('goto').textContent)
const bad = (page, id) => page.eval(id => document.getElementById(id).classList.contains('bad'), id)

// inside reports whether an element is on the screen, and nothing lies over it.
const inside = (page, id) => page.eval(id => {
	const e = document.getElementById(id)
	const b = e.getBoundingClientRect()
	const hit = document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2)
	return b.width > 0 && b.left >= 0 && b.top >= 0 && b.right <= innerWidth && b.bottom <= innerHeight && (e.contains(hit) || !!hit?.contains(e))
}, id)

describe('a height', () => {
	it('is chosen beside Fly there, goes with its place, and is not flown again later', async t => {
		const { page, fake, shown } = await world(t, air(10), { width: 390, height: 844, touch: true, scripts: [stopped] })
		const flyTo = async (metres, text) => {
			await page.eval((lat, lon) => choose(lat, lon), ...north(metres))
			if (text) await page.type('#altitude', text)
			assert.ok(await inside(page, 'altitude'), 'it stands on the first screen')
		}
		await flyTo(40, '20')
		assert.match(await goto(page), /up to 20.m/)
		await page.click('#goto')
		await until('it flies', () => fake.posts.length === 1)
		assert.strictEqual(fake.posts[0].body.altitude, 20)
		await page.shows('answer', 'done')
		// Later, at 39 m: one tap keeps the height.
		await shown(air(39))
		await flyTo(30)
		assert.match(await goto(page), /stay at 39.m/)
		await page.click('#goto')
		await until('it flies', () => fake.posts.length === 2)
		assert.ok(!('altitude' in fake.posts[1].body), JSON.stringify(fake.posts[1].body))
		await page.shows('answer', 'done')
		// A height that was given up with its place, or on the ground, is gone too.
		for (const end of [() => page.click('#cancel'), () => shown({ ...air(0), in_air: false, armed: false })]) {
			await flyTo(30, '12')
			await end()
			await page.eval(() => choose())
			await shown(air(39))
			await flyTo(30)
			assert.match(await goto(page), /stay at 39.m/)
			await page.eval(() => choose())
		}
	})

	it('says up to or down to, and a descent of more than a few metres wants the press', async t => {
		const { page, fake, shown } = await world(t, air(39), { scripts: [stopped] })
		for (const [text, says, press] of [['40', 'up to 40\u00a0m', false], ['37', 'down to 37\u00a0m', false], ['35', 'down to 35\u00a0m', true], ['20', 'down to 20\u00a0m', true]]) {
			for (const place of [true, false]) {
				await shown(air(39))
				await page.eval((lat, lon) => choose(lat, lon), ...place ? north(30) : ['', ''])
				await page.type('#altitude', text)
				const seen = await goto(page)
				assert.ok(seen.startsWith(place ? 'Fly there' : 'Change height') && seen.includes(says) && seen.includes('press 1 s') === press, seen)
				const n = fake.posts.length
				await page.click('#goto')
				await sleep(200)
				assert.strictEqual(fake.posts.length, press ? n : n + 1, `${text}, place ${place}`)
				if (!press) assert.strictEqual(fake.posts.at(-1).body.altitude, Number(text))
				await page.eval(() => say(''))
			}
		}
		// A climb that is not complete goes on.
		await shown({ ...air(4), mode: 'takeoff', done: false, target: { lat: real.home.lat, lon: real.home.lon, altitude: 10, distance: 0 } })
		await page.eval((lat, lon) => choose(lat, lon), ...north(30))
		assert.match(await goto(page), /on to 10.m/)
	})
})

describe('refused sticks', () => {
	it('are said as long as they are held, also after 15 s, a change of mode and another answer', async t => {
		const { page, fake, shown } = await world(t, status({ mode: 'hold' }), { scripts: [stopped] })
		const accepts = fake.answer
		fake.answer = (path, body, r) => (path === 'input' ? refusing('input: the drone is in mode hold; set manual, altitude or position first', 'wrong_mode') : accepts)(path, body, r)
		const at = await page.spot('#right')
		await page.mouse('mousePressed', at)
		const says = () => page.shows('answer', /press Position first.* Release the sticks, then move them again\.$/)
		await says()
		await runLive(page, 40000)
		await says()
		// A failsafe changes the mode.
		await shown(status({ mode: 'land', failsafe: true }))
		await runLive(page, 2000)
		await says()
		// The answer of a button comes between, and goes.
		await page.eval(() => document.getElementById('hold').click())
		await page.shows('answer', '^Hold: done')
		await runLive(page, 16000)
		await says()
		await page.mouse('mouseReleased', at)
		await runLive(page, 16000)
		await page.until('they are let go', () => !/Release/.test(document.getElementById('answer').textContent))
	})
})

describe('a failsafe', () => {
	it('has its reason beside it on the first screen, and reddens only what is the reason', async t => {
		for (const [width, height] of [[390, 844], [844, 390], [320, 568], [568, 320]]) {
			const { page, shown } = await world(t, status(), { width, height, touch: true, scripts: [stopped] })
			const messages = [{ severity: 'critical', text: 'old trouble', age: 50 }, { severity: 'warning', text: 'GPS lost, landing', age: 2 }, { severity: 'info', text: 'landing', age: 1 }]
			await shown(status({ failsafe: true, unhealthy: ['gps'], messages, battery: { ...real.battery, remaining: 98, age: 0 } }))
			assert.match(await page.eval(() => document.body.innerText), /FAILSAFE\s+GPS lost, landing/)
			assert.ok(await inside(page, 'failsafe'))
			assert.deepStrictEqual([await bad(page, 'fact-battery'), await bad(page, 'fact-gps')], [false, true])
			await shown(status({ failsafe: true, unhealthy: ['battery'], messages: [] }))
			assert.match(await page.text('failsafe'), /unhealthy: battery/)
			assert.deepStrictEqual([await bad(page, 'fact-battery'), await bad(page, 'fact-gps')], [true, false])
		}
	})
})

describe('an outage', () => {
	it('keeps the last owner of the sticks, in grey: this page is not another client', async t => {
		const mine = { mode: 'position', input: { active: true, expires_in: 0.4, by: 'client', from: '127.0.0.1', yours: true } }
		const { page, fake, shown } = await world(t, status(mine), { scripts: [stopped] })
		const right = await page.spot('#right')
		await page.mouse('mousePressed', right)
		await until('sticks', () => fake.named('input').length > 0)
		await page.until('answered', () => !posting)
		await shown(status(mine))
		await page.mouse('mouseReleased', right)
		assert.match(await page.text('by'), /^this page/)
		fake.mute = true
		for (let i = 0; i < 4; i++) {
			await run(page, 4000)
			assert.match(await page.text('by'), /^this page/)
		}
		assert.ok(await page.eval(() => document.getElementById('by').classList.contains('old')))
	})
})

describe('answers', () => {
	const said = (page, text) => page.eval(text => plain(text), text)

	it('are in the page\'s own words', async t => {
		const { page } = await world(t)
		for (const [from, to] of [
			['input: the drone is in mode hold; set manual, altitude or position first', 'sticks do nothing in hold: press Position first'],
			['input: a pilot, a failsafe or another program took the drone, which is in mode land; set manual, altitude or position here to take the sticks', 'a pilot, a failsafe or another program took the drone, which is in mode land: press Position to take the sticks'],
			['another client (192.168.1.23) has the sticks; set the mode to take them', 'another client (192.168.1.23) has the sticks; press Position to take them'],
			['arm: the vehicle is in the air; land first', 'the vehicle is in the air; land first'],
			['the autopilot refused arming (temporarily_rejected): RTL mode not armable; it does not arm in RTL: set another mode with it ({"mode":"hold","arm":true}), or take off', 'the autopilot refused arming: RTL mode not armable; it does not arm in RTL: press Hold, then Arm, or Take off'],
			['altitude: want 0.5 to 1000 metres above home, got 1500', 'Height: want 0.5 to 1000 metres above home, got 1500'],
		]) {
			assert.strictEqual(await said(page, from), to)
		}
	})

	// The program's own sentences, as its source has them: whoever adds one sees here whether a pilot can read it.
	it('are so for every sentence with which mavrest refuses a command', async t => {
		const { page } = await world(t)
		const folder = path.join(__dirname, '../..')
		const source = fs.readdirSync(folder).filter(name => /^[^_]+(_[a-z0-9]+)*\.go$/.test(name) && !/_test\.go$|^sim/.test(name)).map(name => fs.readFileSync(path.join(folder, name), 'utf8')).join('\n')
		// A page sends no field that is unknown, given twice or of a wrong type.
		const unreachable = /^(%s: want %s, got a JSON|altitude and altitude_msl: give one|nothing to do: give lat|mode: (missing|want)|arm: a takeoff arms|throttle: it must be given|heading: )/
		const sentences = [...source.matchAll(/refuse\(code(WrongMode|Refused|Offline|NoAck|Interrupted|Unsupported|NotDone|OutOfRange|Superseded),\s*"((?:[^"\\]|\\.)*)"/g)].map(m => JSON.parse(`"${m[2]}"`)).filter(text => !unreachable.test(text)).map(text => text.replace(/%[sq]/g, 'hold').replace(/%[.0-9]*[fg]/g, '3.0'))
		assert.ok(sentences.length > 30, `${sentences.length} sentences`)
		for (const text of sentences) {
			assert.doesNotMatch(await said(page, text), /[{}]|^(input|mode|arm|land|takeoff|goto|altitude|lat|lon): |_msl|in_air|set (manual|the mode|another)|\b(lat|lon|goto)\b|read the status|leave it out/, text)
		}
	})
})
