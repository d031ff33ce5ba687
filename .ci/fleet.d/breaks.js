// What breaks fleet.conf, and the point that must catch it.
'use strict'
const { assert } = require('./world.js')

// lengthOf counts the lines of what begins in a line: a block, or that line.
function lengthOf(lines, from) {
	if (!lines[from].endsWith('{')) return 1
	const indent = lines[from].match(/^\t*/)[0]
	return lines.findIndex((l, i) => i > from && l === indent + '}') - from + 1
}

// without removes the first line or block that begins so, or the last one.
const without = (line, last = false) => conf => {
	const lines = conf.split('\n')
	const begins = l => l.trim().startsWith(line)
	const from = last ? lines.findLastIndex(begins) : lines.findIndex(begins)
	assert.ok(from >= 0, 'no such line: ' + line)
	lines.splice(from, lengthOf(lines, from))
	return lines.join('\n')
}

const change = (what, into) => conf => {
	assert.ok(conf.includes(what), 'no such text: ' + what)
	return conf.replace(what, () => into)
}

const inLocation = line => change('\t\tproxy_bind', `\t\t${line}\n\t\tproxy_bind`)
const inServer = line => change('\tclient_body_timeout', `\t${line}\n\tclient_body_timeout`)
const inHttp = line => conf => line + '\n' + conf
const both = (one, two) => conf => two(one(conf))

// noCode lets nginx answer an error in its own form.
const noCode = (list, code) => [`${code} is nginx's own`, change(list, list.replace(' ' + code, '')), /html/]
const noCodes = (list, ...codes) => codes.map(code => noCode(list, code))
const codes = 'error_page 400 401 404 405 413 414 500 501 505'

// shared sends the fake drone's requests through an "upstream", as one does for "keepalive".
const shared = (upstream, line) =>
	both(inHttp(`upstream shared { ${upstream} }`), both(change('fake 10.9.0.14;', 'fake shared;'), inLocation(line)))

// Of each point its breaks. One is a line that is removed, and what the point says of it;
// or what is broken, how, and what the point says.
const breaks = {
	'a name is the right drone': [
		['rosie 10.9.0.11', /rosie: .*no such drone/],
		['bob   10.9.0.12', /bob: .*no such drone/],
		['proxy_pass', /rosie: .*no such drone/],
		['"~^ann "', /rosie: .*no such drone/],
		['one drone has another\'s address', change('rosie 10.9.0.11', 'rosie 10.9.0.12'), /rosie/],
		['all names are one drone', change('http://$address', 'http://10.9.0.12'), /rosie/],
		['no query', change('$is_args$args', ''), /the query/],
	],
	'a missing, wrong or swapped key is 401': [
		['"ann@example.org ', /user-email.*ann/],
		['" Basic YW5u', /Basic YW5u/],
		['"ben@example.org ', /user-email.*ben/],
		['" Basic YmVu', /Basic YmVu/],
		['if ($user = "")', /404 .*not_found/],
		['"~^401 .*text/html"', /a page asks for a login/],
		['add_header WWW-Authenticate', /a page asks for a login/],
		['401     ', /bad_request/],
		['the email does not count',
			both(change('"$http_user_email', '"any'), conf => conf.replace(/"\w+@example.org /g, '"any ')),
			/"api-key".*: 200/],
		['programs are asked to log in', change('"~^401 .*text/html"', '"~^401 "'), /only a page asks/],
		noCode(codes, '401'),
	],
	'a key for some drones opens no other': [
		['"ben rosie"', /rosie/],
		['if ($source = "")', /fake\/mode/],
		['a right is the beginning of a name', change('"ben rosie"', '"~^ben [rf]"'), /fake\/mode/],
	],
	'other names and paths are 404': [
		['location / { return 404; }', /GET \//],
		['if ($address = "")', /nobody/],
		['internal;', /\/error/],
		['the last internal;', without('internal;', true), /\/unanswered/],
		['404     ', /bad_request/],
		['the end of a path does not count', change('[a-z]+)$', '[a-z]+)'), /status\//],
		['an operation is anything', change('[a-z]+', '[^/]+'), /mode%/],
		noCode(codes, '404'),
	],
	'each operation has mavrest\'s own answer': [
		['nginx answers for mavrest', inLocation('proxy_intercept_errors on;'), /status/],
	],
	'a body over 4 KiB is 413': [
		['client_max_body_size 4k', /a length/],
		['client_max_body_size 0', /HTTP\/2/],
		['413     ', /bad_request/],
		['a smaller body', change('client_max_body_size 4k', 'client_max_body_size 4095'), /413/],
		noCode(codes, '413'),
	],
	'half a request never reaches the drone': [
		['half a request goes on', inLocation('proxy_request_buffering off;'), /goto/],
	],
	'a body that pauses for 10 s is dropped': [
		['client_body_timeout', /not within 15 s/],
	],
	'an event goes on at once': [
		['proxy_buffering off', /event 0: not within/],
	],
	'a client that leaves ends its wait': [
		['nobody\'s wait goes on', inLocation('proxy_ignore_client_abort on;'), /the wait ends/],
	],
	'a command is sent once, and its lost answer is 409': [
		['return 409 \'{"error":"the drone did not', /close: /],
		['return 504', /GET, close: /],
		['"~^POST " ', /close: /],
		['if ($unanswered = POST)', /close: /],
		['a second try',
			shared('server 10.9.0.14; server 10.9.0.14:80;', 'proxy_next_upstream error timeout non_idempotent;'),
			/close, first/],
		['no answer to a lost answer', change('return 409 \'{"error":"the drone did not', 'return 444; return 409 \'{"error":"the drone did not'), /socket hang up|ECONNRESET/],
	],
	'Chromium: a command is sent once': [
		['no answer to a lost answer', change('return 409 \'{"error":"the drone did not', 'return 444; return 409 \'{"error":"the drone did not'), /close, |TypeError/],
	],
	'a drone that is off is known soon, and nobody repeats a command for it': [
		['proxy_connect_timeout', /silent: not within/],
		['error_page 502 504', /closed: 502/],
		['location = /unanswered', /closed: /],
		['if ($unanswered = "POST, not sent")', /closed: /],
		['if ($unanswered = "GET, not sent")', /GET, closed: 504/],
		['return 503', /GET, closed: 504/],
		['"~^POST .* -$"', /closed: /],
		['"~ -$"', /GET, closed: 504/],
		['return 409 \'{"error":"the drone can', /closed: /],
		['the last default_type', without('default_type', true), /octet-stream/],
	],
	'a wait is not cut': [
		['proxy_read_timeout', /after 65 s/],
	],
	'a drone that vanishes ends a wait': [
		['proxy_socket_keepalive', /not within 45 s/],
	],
	'many clients are all answered': [
		['ten are enough',
			both(inServer('limit_conn all 10;'), inHttp('limit_conn_zone $server_addr zone=all:1m;')), /503/],
	],
	'each user has an address of its own, and so who has the sticks holds': [
		['proxy_bind', /10\.9\.0\.1'/],
		['connections are shared',
			shared('server 10.9.0.14; keepalive 8;', 'proxy_http_version 1.1; proxy_set_header Connection "";'),
			/cleo's request/],
	],
	'the keys do not reach the drone': [
		['proxy_set_header api-key', /api-key/],
		['proxy_set_header user-email', /user-email/],
		['proxy_set_header Authorization', /authorization/i],
	],
	'HTTP/2 carries many streams and a command on one connection': [
		['HTTP/1.1 only', change('ssl http2', 'ssl'), /HTTP\/2|ALPN|h2|protocol|session|ECONN|socket/i],
	],
	'nginx\'s own errors have mavrest\'s form': [
		['error_page 400 401', /html/],
		['error_page 494 497', /html/],
		['default \'', /400/],
		['500     ', /bad_request/],
		['location = /error', /html/],
		['default_type', /octet-stream/],
		['return 200 $error', /html/],
		...noCodes(codes, '400', '405', '414', '500', '501', '505'),
		...noCodes('error_page 494 497', '494', '497'),
	],
	'a page of another origin can not command': [
		['nginx hides where a page is from',
			inLocation('proxy_set_header Sec-Fetch-Site "";'), /422|400/],
		['default $http_origin', /422|400/],
		['"~^https:', /the hub's own page/],
		['proxy_set_header Origin', /the hub's own page/],
	],
	'Chromium: one login, and the page flies; its drone leaves the network and comes back': [
		['no login', without('add_header WWW-Authenticate'), /the browser asks for a login/],
	],
}

module.exports = { breaks, without, lengthOf }
