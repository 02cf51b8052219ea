"""The whole interface of the Python client greenstalk, whose package carries no tests of its own.

Run by run.py against one server at a time: BEANSTALK_PORT says where. Each test has a tube of its own.
"""

import os
import socket
import threading
import unittest

import greenstalk

ADDRESS = ("127.0.0.1", int(os.environ["BEANSTALK_PORT"]))


class Greenstalk(unittest.TestCase):
    def setUp(self):
        self.tube = "greenstalk." + self._testMethodName
        self.client = self.connect(self.tube)

    def connect(self, tube, **options):
        client = greenstalk.Client(ADDRESS, use=tube, watch=tube, **options)
        self.addCleanup(client.close)
        return client

    def no_job(self, client=None):
        with self.assertRaises(greenstalk.TimedOutError):
            (client or self.client).reserve(timeout=0)

    # --- put and reserve ---

    def test_job_put_is_reserved_and_deleted(self):
        id = self.client.put("a body")
        job = self.client.reserve()
        self.assertEqual((job.id, job.body), (id, "a body"))
        self.client.delete(job)
        with self.assertRaises(greenstalk.NotFoundError):
            self.client.peek(id)

    def test_jobs_of_equal_priority_come_in_order(self):
        ids = [self.client.put(str(n)) for n in range(20)]
        self.assertEqual([self.client.reserve(timeout=0).id for _ in ids], ids)

    def test_smaller_priority_comes_first(self):
        for priority in (9, 1, 5, 0, 4294967295):
            self.client.put(str(priority), priority=priority)
        order = [self.client.reserve(timeout=0).body for _ in range(5)]
        self.assertEqual(order, ["0", "1", "5", "9", "4294967295"])

    def test_delayed_job_comes_when_its_delay_is_over(self):
        id = self.client.put("later", delay=1)
        self.assertEqual(self.client.stats_job(id)["state"], "delayed")
        self.no_job()
        self.assertEqual(self.client.reserve(timeout=5).id, id)

    def test_reserve_without_jobs_times_out(self):
        self.no_job()
        with self.assertRaises(greenstalk.TimedOutError):
            self.client.reserve(timeout=1)

    def test_waiting_reserve_gets_what_another_client_puts(self):
        got = []
        waiter = threading.Thread(target=lambda: got.append(self.client.reserve(timeout=10).body))
        waiter.start()
        other = self.connect(self.tube)
        while other.stats_tube(self.tube)["current-waiting"] == 0:
            pass
        other.put("for the waiter")
        waiter.join()
        self.assertEqual(got, ["for the waiter"])

    def test_job_is_reserved_by_its_id(self):
        self.client.put("first")
        second = self.client.put("second")
        self.assertEqual(self.client.reserve_job(second).body, "second")
        with self.assertRaises(greenstalk.NotFoundError):
            self.client.reserve_job(second)

    # --- bodies ---

    def test_bodies_of_any_bytes_come_back(self):
        client = self.connect(self.tube, encoding=None)
        for body in (b"", bytes(range(256)), b"\r\n", b"delete 1\r\n", b"\0" * 1000):
            client.put(body)
            job = client.reserve(timeout=0)
            self.assertEqual(job.body, body)
            client.delete(job)

    def test_text_goes_through_its_encoding(self):
        self.client.put("Größe 台灣 🫘")
        self.assertEqual(self.client.reserve(timeout=0).body, "Größe 台灣 🫘")

    def test_largest_body_comes_back_and_a_larger_one_is_refused(self):
        client = self.connect(self.tube, encoding=None)
        body = os.urandom(65535)
        client.put(body)
        self.assertEqual(client.reserve(timeout=0).body, body)
        with self.assertRaises(greenstalk.JobTooBigError):
            client.put(body + b"!")
        client.put(b"the connection goes on")

    # --- what a holder does ---

    def test_released_job_is_ready_with_its_new_priority(self):
        id = self.client.put("job", priority=7)
        self.client.release(self.client.reserve(timeout=0), priority=3)
        stats = self.client.stats_job(id)
        self.assertEqual((stats["state"], stats["pri"], stats["releases"]), ("ready", 3, 1))

    def test_job_released_with_a_delay_is_delayed(self):
        id = self.client.put("job")
        self.client.release(self.client.reserve(timeout=0), delay=100)
        self.assertEqual(self.client.stats_job(id)["state"], "delayed")

    def test_buried_jobs_are_kicked(self):
        ids = [self.client.put(str(n)) for n in range(3)]
        for _ in ids:
            self.client.bury(self.client.reserve(timeout=0), priority=2)
        self.no_job()
        self.assertEqual(self.client.peek_buried().id, ids[0])
        self.assertEqual(self.client.kick(2), 2)
        self.client.kick_job(ids[2])
        self.assertEqual([self.client.reserve(timeout=0).id for _ in ids], ids)

    def test_delayed_job_is_kicked_by_its_id(self):
        id = self.client.put("job", delay=100)
        self.client.kick_job(id)
        self.assertEqual(self.client.reserve(timeout=0).id, id)

    def test_touched_job_has_its_whole_time_again(self):
        self.client.put("job", ttr=2)
        job = self.client.reserve(timeout=0)
        # The last second of a reservation begins.
        with self.assertRaises(greenstalk.DeadlineSoonError):
            self.client.reserve(timeout=5)
        self.client.touch(job)
        self.assertGreaterEqual(self.client.stats_job(job)["time-left"], 1)
        self.client.delete(job)

    def test_reservation_that_ran_out_goes_to_another_client(self):
        id = self.client.put("job", ttr=1)
        self.client.reserve(timeout=0)
        other = self.connect(self.tube)
        self.assertEqual(other.reserve(timeout=5).id, id)
        self.assertEqual(other.stats_job(id)["timeouts"], 1)
        with self.assertRaises(greenstalk.NotFoundError):
            self.client.delete(id)

    def test_reservation_of_a_client_that_left_is_ready_again(self):
        holder = self.connect(self.tube)
        id = self.client.put("job")
        holder.reserve(timeout=0)
        holder.close()
        self.assertEqual(self.client.reserve(timeout=5).id, id)

    def test_others_can_not_touch_what_is_reserved(self):
        self.client.put("job")
        job = self.client.reserve(timeout=0)
        other = self.connect(self.tube)
        for command in (other.delete, other.release, other.bury, other.touch):
            with self.assertRaises(greenstalk.NotFoundError):
                command(job)

    # --- looking ---

    def test_peeks_find_the_first_of_each_state(self):
        for peek in (self.client.peek_ready, self.client.peek_delayed, self.client.peek_buried):
            with self.assertRaises(greenstalk.NotFoundError):
                peek()
        buried = self.client.put("buried")
        self.client.bury(self.client.reserve(timeout=0))
        ready, delayed = self.client.put("ready"), self.client.put("delayed", delay=100)
        self.assertEqual(self.client.peek_ready().id, ready)
        self.assertEqual(self.client.peek_delayed().id, delayed)
        self.assertEqual(self.client.peek_buried().id, buried)
        self.assertEqual(self.client.peek(delayed).body, "delayed")

    def test_ids_that_are_not_there_are_not_found(self):
        for command in (self.client.peek, self.client.kick_job, self.client.stats_job, self.client.delete):
            with self.assertRaises(greenstalk.NotFoundError):
                command(999999999)
        with self.assertRaises(greenstalk.NotFoundError):
            self.client.stats_tube("greenstalk.nobody-uses-this")

    def test_statistics_of_a_job(self):
        id = self.client.put("job", priority=5, delay=0, ttr=50)
        stats = self.client.stats_job(id)
        expected = {"id": id, "tube": self.tube, "state": "ready", "pri": 5, "delay": 0, "ttr": 50, "reserves": 0}
        self.assertEqual({key: stats[key] for key in expected}, expected)

    def test_statistics_of_a_tube(self):
        for delay in (0, 0, 100):
            self.client.put("job", delay=delay)
        self.client.reserve(timeout=0)
        stats = self.client.stats_tube(self.tube)
        expected = {
            "name": self.tube,
            "current-jobs-ready": 1,
            "current-jobs-reserved": 1,
            "current-jobs-delayed": 1,
            "current-jobs-buried": 0,
            "total-jobs": 3,
            "current-using": 1,
            "current-watching": 1,
        }
        self.assertEqual({key: stats[key] for key in expected}, expected)

    def test_statistics_of_the_server(self):
        before = self.client.stats()
        self.client.put("job")
        after = self.client.stats()
        self.assertEqual(after["cmd-put"], before["cmd-put"] + 1)
        self.assertEqual(after["total-jobs"], before["total-jobs"] + 1)
        self.assertEqual(after["max-job-size"], 65535)
        self.assertGreaterEqual(after["current-connections"], 1)

    # --- tubes ---

    def test_lists_of_tubes(self):
        self.assertIn(self.tube, self.client.tubes())
        self.assertEqual(self.client.using(), self.tube)
        self.assertEqual(self.client.watching(), [self.tube])

    def test_used_tube_takes_the_jobs(self):
        self.client.use(self.tube + ".other")
        id = self.client.put("job")
        self.assertEqual(self.client.using(), self.tube + ".other")
        self.assertEqual(self.client.stats_job(id)["tube"], self.tube + ".other")
        self.no_job()

    def test_watched_tubes_are_counted_and_the_last_stays(self):
        self.assertEqual(self.client.watch(self.tube + ".other"), 2)
        self.assertEqual(self.client.ignore(self.tube), 1)
        with self.assertRaises(greenstalk.NotIgnoredError):
            self.client.ignore(self.tube + ".other")

    def test_reserve_takes_from_all_watched_tubes(self):
        names = [f"{self.tube}.{n}" for n in range(5)]
        for name in names:
            self.client.watch(name)
            self.client.use(name)
            self.client.put(name)
        self.assertEqual(sorted(self.client.reserve(timeout=0).body for _ in names), names)

    def test_paused_tube_gives_nothing_until_its_time_is_over(self):
        self.client.put("job")
        self.client.pause_tube(self.tube, 1)
        self.assertEqual(self.client.stats_tube(self.tube)["pause"], 1)
        self.no_job()
        self.assertEqual(self.client.reserve(timeout=5).body, "job")

    # --- errors ---

    def test_names_that_are_none_are_refused(self):
        for name in ("-a", "a b", "a" * 201):
            with self.assertRaises((greenstalk.BadFormatError, greenstalk.UnknownCommandError)):
                self.connect(self.tube).use(name)

    def test_server_that_is_not_there_is_an_error(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            with self.assertRaises(ConnectionRefusedError):
                greenstalk.Client(taken.getsockname())
