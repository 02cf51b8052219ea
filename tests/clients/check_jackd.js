// The whole interface of the Node client jackd, whose package carries no tests of its own.
//
// Run by run.py under mocha against one server at a time: BEANSTALK_PORT says where. Each test has a tube of its own.
'use strict';

const assert = require('assert');
const JackdClient = require('jackd');

const ADDRESS = { host: '127.0.0.1', port: Number(process.env.BEANSTALK_PORT) };

describe('jackd', function () {
    this.timeout(8000);

    let client, tube, clients;
    let number = 0;

    async function connect(name) {
        const made = await new JackdClient().connect(ADDRESS);
        clients.push(made);
        await made.use(name);
        await made.watch(name);
        await made.ignore('default');
        return made;
    }

    async function refused(promise, word) {
        const error = await promise.then(() => null, (error) => error);
        assert(error, `${word} was expected, and it went well`);
        assert.strictEqual((error.response || error.message).split(' ')[0], word);
    }

    const number_of = (yaml, key) => Number(yaml.match(new RegExp(`^${key}: (.*)$`, 'm'))[1]);

    beforeEach(async () => {
        clients = [];
        tube = `jackd.${++number}`;
        client = await connect(tube);
    });

    afterEach(() => clients.forEach((each) => each.socket.destroy()));

    it('reserves and deletes what was put', async () => {
        const id = await client.put('a body');
        const job = await client.reserve();
        assert.deepStrictEqual([job.id, job.payload.toString()], [id, 'a body']);
        await client.delete(id);
        await refused(client.peek(id), 'NOT_FOUND');
    });

    it('gives the smaller priority first', async () => {
        for (const priority of [9, 1, 5]) await client.put(String(priority), { priority });
        const order = [];
        for (let n = 0; n < 3; n++) order.push((await client.reserveWithTimeout(0)).payload.toString());
        assert.deepStrictEqual(order, ['1', '5', '9']);
    });

    it('gives a delayed job when its delay is over', async () => {
        const id = await client.put('later', { delay: 1 });
        await refused(client.reserveWithTimeout(0), 'TIMED_OUT');
        assert.strictEqual((await client.reserveWithTimeout(5)).id, id);
    });

    it('wakes a reserve that waits', async () => {
        const waiting = client.reserve();
        const other = await connect(tube);
        while (number_of((await other.statsTube(tube)).toString(), 'current-waiting') === 0);
        await other.put('for the waiter');
        assert.strictEqual((await waiting).payload.toString(), 'for the waiter');
    });

    it('sends commands without waiting for the replies before', async () => {
        const ids = await Promise.all(Array.from({ length: 50 }, (_, n) => client.put(`job ${n}`)));
        assert.strictEqual(new Set(ids).size, 50);
        const jobs = [];
        for (let n = 0; n < 50; n++) jobs.push(await client.reserveWithTimeout(0));
        assert.deepStrictEqual(jobs.map((job) => job.id), ids);
    });

    it('reserves a job by its id', async () => {
        await client.put('first');
        const id = await client.put('second');
        assert.strictEqual((await client.reserveJob(id)).payload.toString(), 'second');
        await refused(client.reserveJob(id), 'NOT_FOUND');
    });

    it('puts objects as JSON', async () => {
        await client.put({ a: [1, 'ü'] });
        assert.deepStrictEqual(JSON.parse((await client.reserveWithTimeout(0)).payload), { a: [1, 'ü'] });
    });

    it('carries line ends and the largest body', async () => {
        for (const body of ['\r\n', 'delete 1\r\n', '\0\r\n\0', 'x'.repeat(65535)]) {
            await client.put(body);
            const job = await client.reserveWithTimeout(0);
            assert.strictEqual(job.payload.toString(), body);
            await client.delete(job.id);
        }
    });

    it('is told of a body that is too big', async () => {
        await refused(client.put('x'.repeat(65536)), 'JOB_TOO_BIG');
        await client.put('the connection goes on');
    });

    it('releases with another priority and with a delay', async () => {
        const id = await client.put('job', { priority: 7 });
        await client.reserveWithTimeout(0);
        await client.release(id, { priority: 3 });
        assert.strictEqual(number_of((await client.statsJob(id)).toString(), 'pri'), 3);
        await client.reserveWithTimeout(0);
        await client.release(id, { delay: 100 });
        assert((await client.statsJob(id)).toString().includes('\nstate: delayed\n'));
    });

    it('buries and kicks', async () => {
        const ids = [await client.put('one'), await client.put('two')];
        for (const id of ids) {
            await client.reserveWithTimeout(0);
            await client.bury(id, 1);
        }
        assert.strictEqual((await client.peekBuried()).id, ids[0]);
        assert.strictEqual(await client.kick(1), 1);
        await client.kickJob(ids[1]);
        assert.strictEqual((await client.reserveWithTimeout(0)).id, ids[0]);
        assert.strictEqual((await client.reserveWithTimeout(0)).id, ids[1]);
    });

    it('is told that a reservation ends soon, and touches it', async () => {
        const id = await client.put('job', { ttr: 2 });
        await client.reserveWithTimeout(0);
        await refused(client.reserveWithTimeout(5), 'DEADLINE_SOON');
        await client.touch(id);
        assert(number_of((await client.statsJob(id)).toString(), 'time-left') >= 1);
    });

    it('loses a reservation that ran out', async () => {
        const id = await client.put('job', { ttr: 1 });
        await client.reserveWithTimeout(0);
        const other = await connect(tube);
        assert.strictEqual((await other.reserveWithTimeout(5)).id, id);
        await refused(client.delete(id), 'NOT_FOUND');
    });

    it('gives back what it holds when it quits', async () => {
        const id = await client.put('job');
        const holder = await connect(tube);
        await holder.reserveWithTimeout(0);
        await holder.quit();
        assert.strictEqual((await client.reserveWithTimeout(5)).id, id);
    });

    it('peeks at each state', async () => {
        await refused(client.peekReady(), 'NOT_FOUND');
        await refused(client.peekDelayed(), 'NOT_FOUND');
        await refused(client.peekBuried(), 'NOT_FOUND');
        const [ready, delayed] = [await client.put('ready'), await client.put('delayed', { delay: 100 })];
        assert.strictEqual((await client.peekReady()).id, ready);
        assert.strictEqual((await client.peekDelayed()).id, delayed);
        assert.strictEqual((await client.peek(delayed)).payload.toString(), 'delayed');
    });

    it('is told of what is not there', async () => {
        for (const command of ['peek', 'delete', 'touch', 'kickJob', 'statsJob']) {
            await refused(client[command]('999999999'), 'NOT_FOUND');
        }
        await refused(client.statsTube('jackd.nobody-uses-this'), 'NOT_FOUND');
    });

    it('reads statistics', async () => {
        await client.put('job');
        assert.strictEqual(number_of((await client.statsTube(tube)).toString(), 'current-jobs-ready'), 1);
        const stats = (await client.stats()).toString();
        assert(number_of(stats, 'cmd-put') >= 1);
        assert.strictEqual(number_of(stats, 'max-job-size'), 65535);
    });

    it('lists tubes', async () => {
        assert((await client.listTubes()).toString().includes(`\n- ${tube}\n`));
        assert.strictEqual(await client.listTubeUsed(), tube);
        assert.strictEqual((await client.listTubesWatched()).toString().trim(), `---\n- ${tube}`);
    });

    it('watches and ignores, and keeps the last', async () => {
        assert.strictEqual(await client.watch(`${tube}.other`), 2);
        assert.strictEqual(await client.ignore(tube), 1);
        await refused(client.ignore(`${tube}.other`), 'NOT_IGNORED');
    });

    it('reserves from all tubes that it watches', async () => {
        const names = ['a', 'b', 'c', 'd', 'e'].map((letter) => `${tube}.${letter}`);
        for (const name of names) {
            await client.watch(name);
            await client.use(name);
            await client.put(name);
        }
        const got = [];
        for (const _ of names) got.push((await client.reserveWithTimeout(0)).payload.toString());
        assert.deepStrictEqual(got.sort(), names);
    });

    it('pauses a tube', async () => {
        await client.put('job');
        await client.pauseTube(tube, { delay: 1 });
        await refused(client.reserveWithTimeout(0), 'TIMED_OUT');
        assert.strictEqual((await client.reserveWithTimeout(5)).payload.toString(), 'job');
    });

    it('is told of a name that is none', () => refused(client.use('-a'), 'BAD_FORMAT'));
});
