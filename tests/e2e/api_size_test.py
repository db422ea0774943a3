"""A scrape does not grow with the conversations: parkade-bench's workload `api`, small."""

import json
import os
import subprocess
import unittest

from parkade_process import DEADLINE_S, PROGRAM, ServerTest, model

BENCH = os.path.join(os.path.dirname(PROGRAM), "parkade-bench")


class ApiSizeTest(ServerTest):
    @unittest.skipUnless(os.path.exists(BENCH), "parkade-bench is not built")
    def test_a_scrape_does_not_grow(self):
        result = os.path.join(self.folder, "result.json")
        subprocess.run([BENCH, "run", "api", "--scale", "0.02", "--dir", self.folder, "--json",
                        result], stdin=subprocess.DEVNULL, check=True, timeout=2 * DEADLINE_S,
                       env={**os.environ, "PARKADE_MODEL": model("dense"),
                            "XDG_CACHE_HOME": os.path.join(self.folder, "cache")})
        with open(result, encoding="utf-8") as file:
            outcome = json.load(file)
        # Times are told, not asserted: the machines of CI are busy.
        figures = outcome["figures"]
        self.assertGreater(figures["metrics_bytes_vs_few_chats"], 0.95)
        self.assertLess(figures["metrics_bytes_vs_few_chats"], 1.05)
        self.assertGreater(figures["metrics_p50_ms"], 0)
        self.assertEqual(set(outcome["goals"]), {"metrics_p99_ms", "list_p99_ms",
                                                 "list_after_change_p99_ms",
                                                 "metrics_vs_few_chats",
                                                 "metrics_bytes_vs_few_chats"})


if __name__ == "__main__":
    unittest.main()
