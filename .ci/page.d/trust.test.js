// What a first flyer must be able to trust: the page neither misleads nor falls silent in the air.
'use strict'
const { describe, it } = require('node:test')
const assert = require('node:assert')
const fs = require('node:fs')
const path = require('node:path')
const { Browser, until, sleep } = require('./browser.js')
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

// whole reports whether a stick's pad is on the screen, with nothing over its edges.
const whole = (page, id) => page.eval(id => {
	const b = document.getElementById(id).getBoundingClientRect()
	const edges = [[0.5, 0.05], [0.5, 0.95], [0.05, 0.5], [0.95, 0.5]]
	const hits = edges.map(([x, y]) => document.elementFromPoint(b.x + x * b.width, b.y + y * b.height))
	return b.bottom <= innerHeight && b.right <= innerWidth && hits.every(hit => hit?.closest('.stick')?.id === id)
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
			assert.match(await page.text('wrong'), /unhealthy: battery/)
			assert.deepStrictEqual([await bad(page, 'fact-battery'), await bad(page, 'fact-gps')], [true, false])
		}
	})
})

describe('an outage', () => {
	it('leaves of the commands only Hold and Land in the colour of what can be pressed', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		const colours = () => page.eval(() => Object.fromEntries([...document.querySelectorAll('button')]
			.filter(b => b.offsetWidth && !b.closest('#zoom') && b.id !== 'contract').map(b => [b.id || b.dataset.mode, getComputedStyle(b).fontStyle])))
		const upright = async () => Object.entries(await colours()).filter(([, style]) => style !== 'italic').map(([id]) => id).sort()
		assert.ok((await upright()).includes('altitude'))
		await shown(status({ online: false }))
		assert.deepStrictEqual(await upright(), ['hold', 'land'])
	})

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
		// A page sends no field that is unknown, given twice or of a wrong type, no heading, no metres and no altitude_msl.
		const unreachable = /^(%s: want %s, got a JSON|%s and %s: give one|nothing to do: give |up: |mode: (missing|want)|arm: a takeoff arms|throttle: it must be given|heading: |altitude_msl: )/
		// A long sentence is written in parts, "…" + "…".
		const sentences = [...source.matchAll(/refuse\(code(WrongMode|Refused|Offline|NoAck|Interrupted|Unsupported|NotDone|OutOfRange|Superseded),\s*("(?:[^"\\]|\\.)*"(?:\s*\+\s*"(?:[^"\\]|\\.)*")*)/g)].map(m => m[2].match(/"(?:[^"\\]|\\.)*"/g).map(part => JSON.parse(part)).join('')).filter(text => !unreachable.test(text)).map(text => text.replace(/%[sq]/g, 'hold').replace(/%[.0-9]*[fg]/g, '3.0'))
		assert.ok(sentences.length > 30, `${sentences.length} sentences`)
		for (const text of sentences) {
			assert.doesNotMatch(await said(page, text), /[{}]|^(input|mode|arm|land|takeoff|goto|altitude|lat|lon): |_msl|in_air|set (manual|the mode|another)|\b(lat|lon|goto)\b|read the status|leave it out/, text)
		}
	})
})

describe('what the drone does', () => {
	const ground = { armed: false, in_air: false, landed_state: 'on_ground', target: null, done: null }
	const flying = { armed: true, in_air: true, landed_state: 'in_air', target: null, done: null, failsafe: false }
	const at = (metres, more = {}) => ({ position: { ...real.position, lat: real.home.lat + metres / 111319.5, lon: real.home.lon, altitude: 20, age: 0, ...more } })
	const moving = (speed, climb) => ({ velocity: { ...real.velocity, ground_speed: speed, climb, age: 0 } })

	it('is never a landing for a drone that never flew', async t => {
		const { page, shown } = await world(t, status({ ...ground, mode: 'manual' }), { scripts: [stopped] })
		for (const mode of ['land', 'rtl', 'rtgs', 'hold']) {
			await shown(status({ ...ground, mode, done: true }))
			assert.strictEqual(await page.text('doing'), 'On the ground', mode)
		}
		await shown(status({ ...flying, mode: 'land' }))
		await shown(status({ ...ground, mode: 'land' }))
		assert.strictEqual(await page.text('doing'), 'Landed')
	})

	it('of a return is climbing, on its way, or landing at home', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		for (const [s, says] of [
			[{ ...at(80), ...moving(0.2, 2) }, /^Returning, climbing$/],
			[{ ...at(80), ...moving(8, 0) }, /^Returning, 80.m$/],
			[{ ...at(1), ...moving(0.1, -0.7) }, /^Landing at home$/],
			[{ ...at(1), ...moving(0, 0), landed_state: 'landing' }, /^Landing at home$/],
		]) {
			await shown(status({ ...flying, mode: 'rtl', done: false, ...s }))
			assert.match(await page.text('doing'), says)
		}
	})

	it('on a wing is circling, with the radius where it is known', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		const target = { lat: real.home.lat, lon: real.home.lon, altitude: 20, distance: 80 }
		const vehicle = { ...real.vehicle, type: 'fixed_wing', kind: 'wing', circles: 80 }
		const turns = { vehicle, target, ...at(80), ...moving(11, 0) }
		for (const [s, says] of [
			[{ mode: 'hold', done: true }, /^Circling, radius 80\u00a0m$/],
			[{ mode: 'hold', done: null, failsafe: true }, /^Circling, radius 80\u00a0m$/],
			[{ mode: 'takeoff', done: true }, /^Circling, radius 80\u00a0m$/],
			[{ mode: 'hold', done: true, vehicle: { ...vehicle, circles: null } }, /^Circling$/],
			[{ mode: 'hold', done: false, target: { ...target, distance: 400 } }, /^Flying to the target, 400\u00a0m$/],
		]) {
			await shown(status({ ...flying, ...turns, ...s }))
			assert.match(await page.text('doing'), says, JSON.stringify(s))
			if (s.done !== false) assert.match(await page.text('tip'), /Hold circles here/)
		}
	})

	it('in a return from here is known before: it climbs first, unless it is near, high, or not known', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		const vehicle = { ...real.vehicle, return_altitude: 30 }
		for (const [s, says] of [
			[at(40), true],
			[at(40, { altitude: 29.5 }), false],
			[at(5), false],
			[{ ...at(40), vehicle: { ...vehicle, return_altitude: null } }, false],
			[{ ...at(40, { altitude: -5 }), vehicle: { ...vehicle, return_altitude: null } }, false],
			[{ ...at(40), vehicle: { ...vehicle, modes: ['hold', 'land'] } }, false],
		]) {
			await shown(status({ ...flying, mode: 'hold', done: true, vehicle, ...s }))
			assert.strictEqual(/Return climbs to 30.m first\.$/.test(await page.text('tip')), says, JSON.stringify(s))
		}
	})

	it('is stopping while a failsafe or a pilot\'s hold brakes, not flying to a target', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		const target = { lat: real.home.lat, lon: real.home.lon, altitude: 20, distance: 14 }
		for (const [s, says] of [
			[{ failsafe: true, ...moving(6, 0) }, /^Stopping$/],
			[{ ...moving(8, 0) }, /^Stopping$/],
			[{ failsafe: true, ...moving(0.1, 0) }, /^Holding$/],
			[{ done: false, ...moving(5, 0) }, /^Flying to the target, 14.m$/],
			[{ done: false, failsafe: true, ...moving(5, 0) }, /^Flying to the target, 14.m$/],
		]) {
			await shown(status({ ...flying, mode: 'hold', target, ...at(14), ...s }))
			assert.match(await page.text('doing'), says, JSON.stringify(s))
		}
	})
})

// boxes returns where each visible button, pad and field of the first screen is.
const boxes = page => page.eval(() => [...document.querySelectorAll('header, #map, button, .stick, #said')].filter(e => e.offsetWidth && !e.closest('details') && e.getBoundingClientRect().y < innerHeight).map(e => {
	const b = e.getBoundingClientRect()
	return [e.id || e.textContent.trim(), Math.round(b.x), Math.round(b.y), Math.round(b.width), Math.round(b.height)].join(' ')
}))

const sizes = [[390, 844, true], [390, 664, true], [844, 390, true], [768, 1024, true], [1280, 800, false], [360, 640, true], [320, 568, true], [568, 320, true]]

describe('the first screen', () => {
	it('does not move in an outage, and all that is old looks old', async t => {
		for (const [width, height, touch] of sizes) {
			const messages = [{ severity: 'warning', text: 'strong wind', age: 3 }]
			const { page, fake, shown } = await world(t, status(), { width, height, touch, scripts: [stopped] })
			await shown(status({ mode: 'position', in_air: true, messages }))
			const before = await boxes(page)
			fake.mute = true
			await run(page, 12000)
			assert.match(await page.text('banner'), /^No contact/)
			assert.deepStrictEqual(await boxes(page), before, `${width} x ${height}`)
			const look = await page.eval(() => Object.fromEntries(['doing', 'wrong', 'fact-altitude', 'fact-battery', 'return', 'by'].map(id => [id, getComputedStyle(document.getElementById(id)).fontStyle])))
			const pressed = await page.eval(() => [getComputedStyle(document.querySelector('[aria-pressed=true]')).fontStyle, getComputedStyle(document.querySelector('#messages li')).fontStyle])
			assert.deepStrictEqual([...Object.values(look), ...pressed], Array(8).fill('italic'), JSON.stringify(look))
			for (const id of ['hold', 'land']) assert.strictEqual(await page.eval(id => getComputedStyle(document.getElementById(id)).fontStyle, id), 'normal')
		}
	})

	it('has the answer in a place of its own: a long one moves and covers nothing', async t => {
		for (const [width, height, touch] of sizes) {
			const { page, fake } = await world(t, status(), { width, height, touch })
			fake.answer = refusing('the autopilot refused arming: ' + 'PreArm: something is wrong; '.repeat(12))
			const before = await boxes(page)
			await page.click('#hold')
			await page.shows('answer', 'PreArm')
			assert.deepStrictEqual(await boxes(page), before, `${width} x ${height}`)
			for (const id of ['left', 'right']) assert.ok(await whole(page, id), `${id}, ${width} x ${height}`)
		}
	})

	it('names the reason of a hold that mavrest commanded, wherever the page puts it', async t => {
		const messages = [{ severity: 'notice', text: 'mavrest: the client is silent: holding', age: 1 }]
		for (const [width, height, touch] of sizes) {
			const { page, shown } = await world(t, status(), { width, height, touch, scripts: [stopped] })
			await shown(status({ mode: 'hold', done: null, in_air: true, messages }))
			assert.ok(await page.eval(() => [...document.querySelectorAll('body *')].some(e => {
				const b = e.getBoundingClientRect()
				const hit = document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2)
				const own = [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && /client is silent/.test(n.data))
				return own && b.width > 0 && b.top >= 0 && b.bottom <= innerHeight && (e.contains(hit) || hit?.contains(e))
			})), `${width} x ${height}`)
		}
	})

	it('has the map\'s buttons, however low the screen is', async t => {
		for (const [width, height, touch] of [...sizes, [640, 336, true], [667, 300, true]]) {
			const { page, shown } = await world(t, status(), { width, height, touch, scripts: [stopped] })
			await shown(status({ mode: 'hold', in_air: true }))
			for (const id of ['nearer', 'farther', 'fit']) assert.ok(await inside(page, id), `${id}, ${width} x ${height}`)
		}
	})

	it('answers what it does, whether anything is wrong, where it is, and what can be done next', async t => {
		for (const [width, height, touch] of sizes) {
			const { page, shown } = await world(t, status(), { width, height, touch, scripts: [stopped] })
			const away = { ...real.position, lat: real.home.lat + 42 / 111319.5, lon: real.home.lon + 42 / 75000, altitude: 12.3, age: 0 }
			await shown(status({ mode: 'hold', done: true, position: away, messages: [] }))
			for (const id of ['doing', 'reason', 'fact-altitude', 'fact-to-home', 'fact-speed', 'fact-battery', 'by', 'hold', 'return', 'land', 'tip', 'map', 'left', 'right', 'goto', 'altitude', 'nearer', 'farther', 'fit', ...width === 1280 ? [] : ['below']]) {
				assert.ok(await inside(page, id), `${id}, ${width} x ${height}`)
			}
			assert.match(await page.eval(() => document.getElementById('box-to-home').innerText), /^To home\s+6\d.m\s+SW$/)
			assert.match(await page.text('reason'), /^No warnings/)
			assert.ok(await page.eval(() => document.getElementById('hold').classList.contains('loud')))
			await shown(status({ mode: 'hold', done: true, position: away, messages: [{ severity: 'notice', text: 'mavrest: the client is silent: holding', age: 1 }] }))
			assert.match(await page.text('reason'), /^the client is silent: holding, 1.s ago$/)
			await shown(status({ mode: 'manual', in_air: false, armed: false, armable: true, landed_state: 'on_ground', messages: [] }))
			const loud = await page.eval(() => [...document.querySelectorAll('.loud')].filter(e => e.offsetWidth).map(e => e.id))
			assert.deepStrictEqual(loud, ['takeoff'])
			assert.ok(await inside(page, 'up') && await inside(page, 'takeoff'))
			assert.match(await page.text('ready'), /can take off · GPS 3D, 12 satellites/)
			assert.match(await page.text('tip'), /Take off/)
		}
	})

	it('leads to what lies below, and back', async t => {
		const { page } = await world(t, status(), { width: 390, height: 844, touch: true })
		assert.ok(!await inside(page, 'answers'))
		await page.click('#below')
		await page.until('messages and answers', () => {
			const b = document.getElementById('messages').getBoundingClientRect()
			return b.top >= 0 && b.top < innerHeight - 200
		})
		await page.click('#below')
		await page.until('the first screen', () => document.querySelector('main').scrollTop === 0)
	})

	it('keeps Land on the screen where the text is at 200 %', async t => {
		for (const [width, height, touch] of sizes.filter(([, , touch]) => touch)) {
			const { page } = await world(t, status(), { width, height, touch })
			await page.eval(() => { document.documentElement.style.fontSize = '200%' })
			for (const id of ['hold', 'return', 'land', 'doing']) assert.ok(await page.eval(id => {
				const b = document.getElementById(id).getBoundingClientRect()
				return b.left >= 0 && b.right <= innerWidth && b.top >= 0 && b.bottom <= innerHeight
			}, id), `${id}, ${width} x ${height}`)
			assert.ok(await page.eval(() => document.documentElement.scrollWidth <= innerWidth))
		}
	})

	it('has targets of at least 44 pixels, and letters of at least 11', async t => {
		for (const [width, height, touch] of sizes) {
			const { page, shown } = await world(t, status(), { width, height, touch, scripts: [stopped] })
			await opened(page)
			for (const air of [true, false]) {
				await shown(status({ in_air: air, armed: air }))
				if (air) await page.eval((lat, lon) => choose(lat, lon), ...north(30))
				const small = await page.eval(() => [...document.querySelectorAll('button, summary')].filter(e => e.offsetWidth && (e.offsetHeight < 43 || e.offsetWidth < 43)).map(e => e.id || e.textContent))
				assert.deepStrictEqual(small, [], `${width} x ${height}`)
				const tiny = await page.eval(() => [...document.querySelectorAll('#map text, button small, dt, dd, #legend, #scale, .stick span')].filter(e => parseFloat(getComputedStyle(e).fontSize) < 10.8).map(e => e.outerHTML))
				assert.deepStrictEqual(tiny, [], `${width} x ${height}`)
			}
		}
	})

	it('prints nothing over anything else: the sticks\' owner stands beside the header, the pads are whole', async t => {
		const input = { active: true, expires_in: 0.4, by: 'client', from: '192.168.100.123', yours: false }
		for (const [width, height, touch] of sizes) {
			const { page, shown } = await world(t, status(), { width, height, touch, scripts: [stopped] })
			await shown(status({ mode: 'position', input, failsafe: true, messages: [{ severity: 'critical', text: 'Low battery, returning', age: 1 }] }))
			const over = await page.eval(() => {
				const box = id => document.getElementById(id).getBoundingClientRect()
				const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1
				const parts = 'doing top news strip view hands by left right said hold return land fact-altitude fact-speed'
				const ids = parts.split(' ').filter(id => document.getElementById(id)?.offsetWidth)
				const within = (a, b) => document.getElementById(a).contains(document.getElementById(b))
				return ids.flatMap((a, i) => ids.slice(i + 1).filter(b => !within(a, b) && meet(box(a), box(b))).map(b => a + ' over ' + b))
			})
			assert.deepStrictEqual(over, [], `${width} x ${height}`)
			const cut = await page.eval(() => [...document.querySelectorAll('#strip button, #hands p')].filter(e => {
				return e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1
			}).map(e => e.textContent))
			assert.deepStrictEqual(cut, [], `${width} x ${height}`)
			for (const id of ['left', 'right']) assert.ok(await whole(page, id), `${id}, ${width} x ${height}`)
		}
	})
})

describe('buttons', () => {
	it('that want a press say so after a short tap', async t => {
		const { page, shown } = await world(t, status({ in_air: false, armed: false }))
		await opened(page)
		for (const [button, name] of [['#takeoff', 'Take off'], ['#arm', 'Arm'], ['[data-mode=manual]', 'Manual']]) {
			await page.click(button)
			await page.shows('answer', `^${name}: keep it pressed for a second\\.$`)
		}
		await shown(status({ in_air: true, mode: 'hold' }))
		await page.eval((lat, lon) => choose(lat, lon), ...north(30))
		await page.click('#land-there')
		await page.shows('answer', '^Land there: keep it pressed for a second\\.$')
	})

	it('of the map: a tap on the ground says take off first, and chooses nothing', async t => {
		const { page } = await world(t, status({ in_air: false, armed: false }))
		await page.click('#map', { x: 30, y: 20 })
		await page.shows('answer', '^Take off first')
		assert.ok(await page.eval(() => document.getElementById('chosen').classList.contains('gone') && !document.getElementById('lat').value))
	})

	it('are not there where the vehicle would answer 501', async t => {
		const { page, shown } = await world(t, status(), { scripts: [stopped] })
		await opened(page)
		const all = ['manual', 'altitude', 'position', 'takeoff', 'hold', 'land', 'rtl', 'rtgs']
		for (const [vehicle, lost] of [
			[{ type: 'quadrotor', kind: 'hover', modes: all }, []],
			[{ type: 'ground_rover', kind: 'wheels', modes: ['manual', 'position', 'hold', 'land', 'rtl', 'rtgs'] }, ['altitude', 'altitude-box']],
			[{ autopilot: 'ardupilot', type: 'fixed_wing', kind: 'wing', modes: ['manual', 'altitude', 'takeoff', 'hold', 'rtl', 'rtgs'] }, ['position', 'land', 'land-there']],
		]) {
			await page.eval((lat, lon) => choose(lat, lon), ...north(30))
			await shown(status({ in_air: true, mode: 'hold', vehicle: { ...real.vehicle, ...vehicle } }))
			const gone = await page.eval(() => [...document.querySelectorAll('#land, #hold, #return, #land-there, #altitude-box, [data-mode]')].filter(e => !e.offsetWidth).map(e => e.dataset.mode ?? e.id))
			assert.deepStrictEqual(gone.sort(), lost.sort(), vehicle.type)
		}
	})

	it('are none on what can only be read: one line says why, and no tap sends anything', async t => {
		const why = 'it calls itself ArduPilot\'s Copter, and answers other questions but no parameter, as INAV and Betaflight do: its state can be read, not commanded'
		const { fake, page, shown } = await world(t, status(), { scripts: [stopped] })
		await opened(page)
		for (const error of [why, null]) {
			await shown(status({ in_air: true, armed: true, mode: 'other', vehicle: { ...real.vehicle, modes: [] }, link: { ...real.link, error } }))
			const line = await page.text('tip')
			assert.strictEqual(line, error ?? 'This vehicle can be read, not commanded.')
			const pressed = await page.eval(() => [...document.querySelectorAll('#sticks, #more, #up-box, #there, #hold, #return, #land, #takeoff, [data-mode]')].filter(e => e.offsetWidth).map(e => e.id || e.dataset.mode))
			assert.deepStrictEqual(pressed, [])
			await page.click('#map', { x: 30, y: 20 })
			assert.strictEqual(await page.eval(() => document.getElementById('lat').value), '')
		}
		assert.deepStrictEqual(fake.posts, [])
		// A vehicle that has not proven its family yet is held all the same in the air, so Escape asks mavrest.
		await page.key('down', 'Escape')
		await page.key('up', 'Escape')
		await until('the hold', () => fake.named('mode').length === 1)
	})
})

describe('the map', () => {
	const drag = async (page, x, y) => {
		const at = await page.spot('#map')
		await page.mouse('mousePressed', at)
		for (let i = 1; i <= 4; i++) await page.mouse('mouseMoved', { x: at.x + x * i / 4, y: at.y + y * i / 4 })
		await page.mouse('mouseReleased', { x: at.x + x, y: at.y + y })
	}

	it('can be dragged and zoomed, then says by an arrow where the drone is; Fit follows it again', async t => {
		const { page, shown } = await world(t, air(10), { scripts: [stopped] })
		await drag(page, -500, 0)
		assert.strictEqual(await page.eval(() => document.getElementById('lat').value), '', 'a drag chooses no place')
		await shown(air(10))
		assert.ok(await inside(page, 'away'), 'an arrow')
		const arrow = await page.eval(() => document.getElementById('away').getBoundingClientRect().x - document.getElementById('view').getBoundingClientRect().x)
		assert.ok(arrow < 60, 'to the west, where the drone is')
		await page.click('#fit')
		assert.ok(await inside(page, 'drone') && !await inside(page, 'away'))
	})

	it('zooms by two fingers and by the wheel, about the point under them', async t => {
		const { page } = await world(t, air(10), { width: 390, height: 844, touch: true })
		const at = await page.spot('#map')
		const was = await page.eval(() => { zoomTo(100); return reach })
		await page.touch('touchStart', [{ x: at.x - 20, y: at.y }, { x: at.x + 20, y: at.y }])
		for (let i = 1; i <= 4; i++) await page.touch('touchMove', [{ x: at.x - 20 - 10 * i, y: at.y }, { x: at.x + 20 + 10 * i, y: at.y }])
		await page.touch('touchEnd', [])
		const is = await page.eval(() => reach)
		assert.ok(is < was / 2 && is > was / 4, `${was} m, then ${is} m`)
		assert.strictEqual(await page.eval(() => document.getElementById('lat').value), '')
		await page.send('Input.dispatchMouseEvent', { type: 'mouseWheel', x: at.x, y: at.y, deltaX: 0, deltaY: 300 })
		await page.until('farther', is => reach > is * 1.9, [is])
	})

	it('has letters and signs of the same size on each screen, and numbers on its rings', async t => {
		for (const [width, height, touch] of sizes) {
			const { page, shown } = await world(t, air(10), { width, height, touch, scripts: [stopped] })
			await shown({ ...air(10), target: { lat: real.home.lat + 40 / 111319.5, lon: real.home.lon, altitude: 10, distance: 40 } })
			await page.until('drawn for this size', () => {
				return Math.abs(document.getElementById('map').getScreenCTM().a - 1) < 0.01
			})
			const seen = await page.eval(() => ({
				drone: document.getElementById('drone').getBoundingClientRect().height,
				rings: [...document.querySelectorAll('#rings text')].map(e => e.textContent),
				cut: [...document.querySelectorAll('#rings text:not(.gone)')].filter(e => {
					const view = document.getElementById('view').getBoundingClientRect()
					const b = e.getBoundingClientRect()
					const inView = b.right > view.left && b.left < view.right && b.bottom > view.top && b.top < view.bottom
					return inView && (b.right > view.right || b.top < view.top)
				}).map(e => e.textContent),
			}))
			assert.deepStrictEqual(seen.cut, [], `${width} x ${height}`)
			assert.ok(seen.drone > 18 && seen.drone < 36, JSON.stringify(seen))
			assert.ok(seen.rings.length > 0 && seen.rings.every(text => /^\d+\u00a0k?m$/.test(text)), JSON.stringify(seen))
		}
	})
})

describe('sticks', () => {
	const knob = (page, id) => page.eval(id => {
		const pad = document.getElementById(id).getBoundingClientRect()
		const b = document.querySelector(`#${id} i`).getBoundingClientRect()
		return [Math.round((b.x + b.width / 2 - pad.x - pad.width / 2) / pad.width / 0.033) / 10, Math.round((pad.y + pad.height / 2 - b.y - b.height / 2) / pad.height / 0.033) / 10]
	}, id)

	it('show what is sent, from keys and from a gamepad', async t => {
		const pad = 'window.axes4 = [0, 0, 0, 0]; navigator.getGamepads = () => [{ connected: true, axes: window.axes4 }]'
		const { page, fake } = await world(t, status({ mode: 'position', in_air: true }), { scripts: [stopped, pad] })
		await page.eval(() => { document.getElementById('keys').checked = true })
		await page.key('down', 'ArrowUp')
		await page.key('down', 'KeyA')
		await runLive(page, 300)
		assert.deepStrictEqual([await knob(page, 'left'), await knob(page, 'right')], [[-0.5, 0], [0, 0.5]])
		await page.key('up', 'ArrowUp')
		await page.key('up', 'KeyA')
		await page.eval(() => { window.axes4 = [0.5, -1, -0.5, 1] })
		await runLive(page, 300)
		assert.deepStrictEqual([await knob(page, 'left'), await knob(page, 'right')], [[0.5, 1], [-0.5, -1]])
		// The page's clock stands still between these runs, and a post that is still on its way holds up the next one.
		await until('sticks', async () => {
			await runLive(page, 100)
			return fake.posts.at(-1)?.body.pitch === -1
		})
		await page.eval(() => { window.axes4 = [NaN, 0, undefined, 0] })
		await runLive(page, 300)
		assert.deepStrictEqual([await knob(page, 'left'), await knob(page, 'right')], [[0, 0], [0, 0]])
	})

	it('of keys do not fly from what scrolls', async t => {
		const { page, fake } = await world(t, status({ mode: 'position' }))
		await page.eval(() => { document.getElementById('keys').checked = true })
		for (const id of ['messages', 'answers', 'news', 'said']) {
			await page.eval(id => document.getElementById(id)?.focus(), id)
			for (const code of ['ArrowDown', 'KeyW']) {
				await page.key('down', code)
				await sleep(250)
				await page.key('up', code)
			}
		}
		assert.deepStrictEqual(fake.posts, [])
		await page.eval(() => document.activeElement.blur())
		await page.key('down', 'ArrowDown')
		await until('it flies', () => fake.posts.length > 0)
		await page.key('up', 'ArrowDown')
	})

	it('have captions that the knob does not cover, and the words of their kind', async t => {
		const { page, shown } = await world(t, status({ mode: 'manual', in_air: false }), { scripts: [stopped] })
		await run(page, 200)
		assert.ok(await page.eval(() => {
			const e = document.querySelector('#left span')
			return getComputedStyle(e).backgroundColor !== 'rgba(0, 0, 0, 0)' && getComputedStyle(e).position === 'absolute'
		}))
		for (const [kind, words] of [['hover', 'forward, right'], ['wing', 'forward sinks, turn'], ['wheels', 'steer']]) {
			await shown(status({ vehicle: { ...real.vehicle, kind } }))
			assert.strictEqual(await page.eval(() => document.querySelector('#right span').textContent), words)
		}
	})

	it('that nobody has in altitude or manual mode are said, once it has lasted: the drone drifts', async t => {
		const nobody = { active: false, expires_in: null, by: null, from: null, yours: false }
		for (const mode of ['altitude', 'manual']) {
			const { page, shown } = await world(t, status({ in_air: true, mode, input: nobody, messages: [] }), { scripts: [stopped] })
			await runLive(page, 3000)
			await shown(status({ in_air: true, mode, input: nobody, messages: [] }))
			assert.doesNotMatch(await page.text('reason'), /Nobody/)
			await runLive(page, 2000)
			assert.match(await page.text('reason'), new RegExp(`^Nobody has the sticks: in ${mode} mode the drone drifts\\. Press Hold\\.$`))
			await shown(status({ in_air: true, mode: 'position', input: nobody, messages: [] }))
			assert.doesNotMatch(await page.text('reason'), /Nobody/)
		}
	})
})

describe('the stream', () => {
	it('is closed while the page is hidden, and opened when it is shown', async t => {
		const own = await Browser.start() // with one window
		const { page, fake } = await world(t, status(), { focus: false }, own)
		t.after(() => own.end()) // after the page is closed
		fake.answer = path => {}
		await page.click('#return')
		await until('the wait', () => fake.posts.length === 1)
		const other = await own.open('about:blank', { tab: true, focus: false })
		await other.front()
		await until('no stream and no wait', () => fake.streams.size === 0 && !fake.posts[0].open)
		await page.until('the title says so', () => document.title === 'resting – drone')
		await sleep(2500)
		assert.strictEqual(fake.streams.size, 0)
		await other.close()
		await page.front()
		await until('a stream', () => fake.streams.size === 1)
		await page.shows('banner', '^$')
		await page.until('its title', () => !/resting/.test(document.title))
		await page.shows('answer', '^Return: the page was hidden')
	})

	it('of seven pages in one browser lets the Hold of the first leave', async t => {
		const own = await Browser.start()
		const { page, fake } = await world(t, status(), { focus: false }, own)
		t.after(() => own.end())
		for (let i = 0; i < 7; i++) await own.open(fake.url, { tab: true, focus: false })
		await page.front()
		await page.until('it is shown', () => !document.hidden)
		await page.eval(() => document.getElementById('hold').click())
		await until('a hold', () => fake.named('mode').length === 1, 10)
	})

	it('whose events come late is no contact; a restart of mavrest begins anew', async t => {
		const { page, fake, shown } = await world(t, status({ time: 100 }), { scripts: [stopped] })
		const later = async (ms, time) => {
			await page.eval(ms => { for (; ms > 0; ms -= 100) { heard = now(); window.run(100) } }, ms)
			await shown(status({ time }))
			return page.text('banner')
		}
		assert.strictEqual(await later(1000, 101), '')
		assert.strictEqual(await later(2500, 102), '', '1.5 s late')
		assert.match(await later(1600, 103), /^No contact with mavrest since \d\d:\d\d:\d\d\. What you see is old\.$/, '2.1 s late')
		assert.ok(await page.eval(() => document.querySelectorAll('dl .old').length > 10))
		await page.click('#return')
		await page.shows('answer', 'was not sent')
		assert.deepStrictEqual(fake.posts, [])
		assert.strictEqual(await later(100, 5), '', 'time ran back')
		assert.strictEqual(await later(1000, 6), '')
		assert.match(await later(4000, 7.5), /^No contact/)
		assert.strictEqual(await later(0, 10.5), '', 'caught up')
	})
})

describe('a pilot', () => {
	it('finds the last five answers with their times, and how long it has flown', async t => {
		const { page, fake, shown } = await world(t, status({ in_air: false, armed: false }), { scripts: [stopped] })
		for (let i = 1; i <= 7; i++) {
			fake.answer = refusing('reason ' + i)
			await page.eval(() => document.getElementById('land').click())
			await page.shows('answer', 'reason ' + i)
			await runLive(page, 3000)
		}
		const list = await page.eval(() => [...document.querySelectorAll('#answers li')].map(li => li.textContent))
		assert.strictEqual(list.length, 5)
		assert.match(list[0], /^\d\d:\d\d:\d\d Land: reason 7$/)
		assert.match(list[4], /^\d\d:\d\d:\d\d Land: reason 3$/)
		await shown(status({ in_air: true, messages: [] }))
		await runLive(page, 75000)
		await shown(status({ in_air: true, messages: [] }))
		assert.match(await page.text('reason'), /in the air for 1:15($| ·)/)
	})

	it('who opens the page in the air reads that the flight may have been longer', async t => {
		const { page, shown } = await world(t, status({ in_air: true, messages: [] }), { scripts: [stopped] })
		await runLive(page, 3000)
		await shown(status({ in_air: true, messages: [] }))
		assert.match(await page.text('reason'), /in the air for 0:03 or longer/)
	})

	it('reads one height in one rounding', async t => {
		const { page, shown } = await world(t, air(9.97), { scripts: [stopped] })
		for (const [v, text] of [[9.97, '10'], [9.93, '9.9'], [10.4, '10'], [39.6, '40'], [-0.02, '0.0']]) {
			await shown(air(v))
			await page.eval((lat, lon) => choose(lat, lon), ...north(30))
			assert.strictEqual(await page.text('fact-altitude'), text + '\u00a0m')
			assert.ok((await goto(page)).includes(`stay at ${text}\u00a0m`), await goto(page))
			assert.strictEqual(await page.eval(() => document.getElementById('altitude').placeholder), text)
		}
	})
})

describe('a first flyer', () => {
	const chosen = page => page.eval(() => document.getElementById('lat').value)
	const ground = () => ({ ...air(0), in_air: false, armed: false, mode: 'manual', armable: true })

	it('finds no place of the flight before under the button that took off', async t => {
		const { page, shown } = await world(t, air(10), { scripts: [stopped] })
		await page.eval((lat, lon) => choose(lat, lon), ...north(30))
		await shown(ground())
		assert.strictEqual(await chosen(page), '', 'the landing forgets the place')
	})

	it('ends no takeoff, landing or return by one tap on Fly there', async t => {
		const { page, fake, shown } = await world(t, air(10), { scripts: [stopped] })
		for (const [s, press] of [
			[{ mode: 'takeoff', done: false }, true],
			[{ mode: 'land', done: false }, true],
			[{ mode: 'rtl', done: false }, true],
			[{ mode: 'hold', done: true }, false],
		]) {
			await shown({ ...air(10), ...s })
			await page.eval((lat, lon) => choose(lat, lon), ...north(30))
			assert.strictEqual((await goto(page)).includes('press 1 s'), press, JSON.stringify(s))
			assert.strictEqual(await page.eval(() => document.getElementById('goto').classList.contains('loud')), !press)
		}
		assert.deepStrictEqual(fake.posts, [])
	})

	it('taps the map and has the mark under the finger, though the tap is near its edge', async t => {
		const { page, shown } = await world(t, air(10), { width: 390, height: 844, touch: true, scripts: [stopped] })
		for (const by of [{ x: 150, y: 90 }, { x: -160, y: -20 }, { x: 150, y: 90 }]) {
			const at = await page.spot('#map')
			await page.click('#map', by)
			await shown(air(10))
			const mark = await page.eval(() => {
				const b = document.getElementById('chosen').getBoundingClientRect()
				return { x: b.x + b.width / 2, y: b.y + b.height / 2 }
			})
			assert.ok(Math.hypot(mark.x - at.x - by.x, mark.y - at.y - by.y) < 2, JSON.stringify([at, by, mark]))
		}
	})

	it('can\'t fly into the ground or by a slip very high, and reads how high a takeoff goes', async t => {
		const { page, fake, shown } = await world(t, air(10), { scripts: [stopped] })
		await page.type('#altitude', '-5')
		await page.click('#goto')
		const at = await page.spot('#goto')
		await page.mouse('mousePressed', at)
		await runLive(page, 1200)
		await page.mouse('mouseReleased', at)
		await page.shows('answer', 'Height is under 0.5 m')
		await page.type('#altitude', '500')
		assert.match(await goto(page), /up to 500.m · press 1 s/)
		assert.deepStrictEqual(fake.posts, [])
		await shown(ground())
		await page.type('#up', '1000')
		await page.until('the button names it', () => /to 1000.m/.test(document.getElementById('takeoff').textContent))
		const target = { lat: real.home.lat, lon: real.home.lon, altitude: 1000, distance: 0 }
		await shown({ ...air(13), mode: 'takeoff', done: false, target })
		assert.match(await page.text('doing'), /^Taking off, to 1000.m$/)
	})

	it('has buttons that an answer does not move', async t => {
		const { page, fake } = await world(t, air(10), { width: 390, height: 844, touch: true })
		await opened(page)
		fake.answer = refusing('the vehicle is in the air; land first')
		const where = () => page.eval(() => [...document.querySelectorAll('#more button')].map(e => e.offsetTop))
		const before = await where()
		await page.eval(() => document.getElementById('disarm').click())
		await page.shows('answer', 'land first')
		assert.deepStrictEqual(await where(), before)
	})
})
