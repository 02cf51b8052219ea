"""The interface of the Python client pystalk, whose package carries no tests of its own.

Run by run.py against one server at a time: BEANSTALK_PORT says where. Each test has a tube of its own.
"""

import os
import unittest

import pystalk

PORT = int(os.environ["BEANSTALK_PORT"])


class Pystalk(unittest.TestCase):
    def setUp(self):
        self.tube = "pystalk." + self._testMethodName
        self.client = self.connect(self.tube)

    def connect(self, *tubes):
        client = pystalk.BeanstalkClient("127.0.0.1", PORT, socket_timeout=10, auto_decode=True)
        self.addCleanup(client.close)
        client.use(tubes[0])
        client.watchlist = tubes
        return client

    def put(self, body, **options):
        """The new job's id; the client gives it behind the reply's word."""
        word, id = self.client.put_job(body, **options)
        self.assertEqual(word, b"INSERTED")
        return id

    def refuses(self, message, call, *arguments):
        with self.assertRaises(pystalk.BeanstalkError) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.message, message)

    def test_job_put_is_reserved_and_deleted(self):
        id = self.put("a body")
        job = self.client.reserve_job(0)
        self.assertEqual((job.job_id, job.job_data), (id, "a body"))
        self.client.delete_job(job)
        self.refuses("NOT_FOUND", self.client.delete_job, id)

    def test_jobs_of_equal_priority_come_in_order(self):
        ids = [self.put(str(n)) for n in range(20)]
        self.assertEqual([job.job_id for job in self.client.reserve_iter()], ids)

    def test_smaller_priority_comes_first(self):
        for priority in (9, 1, 5):
            self.client.put_job(str(priority), pri=priority)
        self.assertEqual([job.job_data for job in self.client.reserve_iter()], ["1", "5", "9"])

    def test_reserve_without_jobs_times_out(self):
        self.refuses("TIMED_OUT", self.client.reserve_job, 0)
        self.refuses("TIMED_OUT", self.client.reserve_job, 1)

    def test_delayed_job_is_peeked_at_and_comes_later(self):
        id = self.put("later", delay=1)
        self.assertEqual(self.client.peek_delayed().job_id, id)
        self.assertEqual(self.client.reserve_job(5).job_id, id)

    def test_job_released_comes_again(self):
        id = self.put("again")
        self.client.release_job(self.client.reserve_job(0), pri=7)
        self.assertEqual(self.client.stats_job(id)["pri"], 7)
        self.assertEqual(self.client.reserve_job(0).job_id, id)

    def test_jobs_buried_are_kicked(self):
        ids = [self.put(str(n)) for n in range(3)]
        for job in self.client.reserve_iter():
            self.client.bury_job(job)
        self.assertEqual(self.client.peek_buried().job_id, ids[0])
        self.client.kick_job(ids[2])
        self.assertEqual(self.client.peek_ready().job_id, ids[2])
        self.assertEqual(self.client.kick_jobs(10), (b"KICKED", 2))
        self.assertEqual(sorted(job.job_id for job in self.client.reserve_iter()), ids)

    def test_put_into_another_tube_leaves_the_used_one(self):
        other = self.tube + ".other"
        self.client.put_job_into(other, "there")
        with self.client.using(other) as inserter:
            inserter.put_job("there, too")
        id = self.put("here")
        self.assertEqual(self.client.reserve_job(0).job_id, id)
        there = self.connect(other)
        self.assertEqual([job.job_data for job in there.reserve_iter()], ["there", "there, too"])

    def test_tube_paused_gives_no_job_until_it_is_unpaused(self):
        id = self.put("held back")
        self.client.pause_tube(self.tube, 60)
        self.refuses("TIMED_OUT", self.client.reserve_job, 0)
        self.client.unpause_tube(self.tube)
        self.assertEqual(self.client.reserve_job(0).job_id, id)

    def test_statistics_count(self):
        self.client.put_job("counted")
        self.assertEqual(self.client.stats_tube(self.tube)["current-jobs-ready"], 1)
        self.assertEqual(self.client.stats()["version"], "1.13")
        self.assertIn(self.tube, self.client.list_tubes())
        self.refuses("NOT_FOUND", self.client.stats_tube, self.tube + ".none")

    def test_large_and_binary_bodies_come_back_as_they_were(self):
        client = pystalk.BeanstalkClient("127.0.0.1", PORT, socket_timeout=10)
        self.addCleanup(client.close)
        client.use(self.tube)
        client.watchlist = [self.tube]
        for body in (bytes(range(256)) * 200, b"", b"\r\n" * 100):
            client.put_job(body)
            job = client.reserve_job(0)
            self.assertEqual(job.job_data, body)
            client.delete_job(job)
        self.refuses("JOB_TOO_BIG", client.put_job, b"x" * 70_000)

    def test_last_watched_tube_is_not_ignored(self):
        self.refuses("NOT_IGNORED", self.client.ignore, self.tube)

    def test_reserve_takes_from_all_watched_tubes(self):
        other = self.tube + ".2"
        client = self.connect(self.tube, other)
        client.put_job("one")
        client.put_job_into(other, "two")
        self.assertEqual(sorted(job.job_data for job in client.reserve_iter()), ["one", "two"])
