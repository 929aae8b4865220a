"""A deep queue on the simulated GPU, as a person would write it with SimPy.

The yardstick for the engine's speed: the same queue, controller, wake and clock changes, a process
each for the GPU and the controller's timer, events from a library. It reads the parameters from the
JSON that `cargo run --release -p everwarm-sim --example 02-yardstick` prints, and prints the same figures.

Usage: simpy_queue.py PARAMETERS.json [--plain]     (--plain: the same loop without SimPy)
"""

import json
import math
import sys
import time


class Controller:
    """The controller of crates/dvfs/src/controller.rs, for a queue that is never empty."""

    def __init__(self, p):
        self.p = p
        self.filtered = p["filter_start_pct"]
        self.regulated = self.boost = self.hold = self.streak = self.bursts = 0.0
        self.pstate = 0

    def earns(self, more, more_bursts):
        p = self.p
        first = p["boost_periods_burst"] if self.bursts > 0.0 else p["boost_periods"]
        enough = self.streak >= first + more - 1e-6
        return enough, self.bursts >= p["boost_periods_burst"] + more_bursts - 1e-6

    def sample(self, share):
        p = self.p
        keep = (1.0 - 1.0 / p["filter_periods"]) ** share
        before = self.filtered
        self.filtered = keep * before + (1.0 - keep) * 100.0
        error = self.filtered - p["target_utilization_pct"]
        step = p["proportional_gain"] * (self.filtered - before) + p["integral_gain"] * error * share
        self.regulated = min(max(self.regulated + step, 0.0), p["output_limit_pct"])
        earned = self.earns(0.0, 0.0)
        reset = p["reset_periods"]
        self.streak = min(self.streak + share, p["boost_periods"] + p["lasting_boost_periods"] + reset)
        most = p["boost_periods_burst"] + p["lasting_boost_periods_burst"] + reset
        self.bursts = min(self.bursts + share, most)
        earns = self.earns(0.0, 0.0)
        newly = any(now and not was for now, was in zip(earns, earned))
        self.hold = reset if newly else max(self.hold - share, 0.0)
        if any(self.earns(p["lasting_boost_periods"], p["lasting_boost_periods_burst"])):
            climbed = max(self.boost + p["proportional_gain"] * share, p["boost_step_pct"])
            self.boost = min(climbed, 100.0 + p["proportional_gain"])
        elif self.hold > 0.0:
            missing = max(p["boost_step_pct"] - self.boost, 0.0)
            self.boost += missing * (1.0 - (1.0 - p["boost_rise"]) ** share)
        else:
            self.boost *= p["boost_fade"] ** share
        output = max(self.regulated, self.boost)
        places = p["places"]
        self.pstate = 0
        for low, high in zip(places, places[1:]):
            if output < (low + high) / 2.0:
                break
            self.pstate += 1
        return self.pstate


class Work:
    """What is left of a command buffer: fixed time, then cycles. Unit: ns, cycles."""

    def __init__(self, fixed, cycles):
        self.fixed, self.cycles = fixed, cycles

    def left(self, clock):
        return math.ceil(self.fixed + self.cycles / clock)

    def spend(self, ns, clock):
        fixed = min(ns, self.fixed)
        self.fixed -= fixed
        self.cycles = max(self.cycles - min(ns - fixed, self.cycles / clock) * clock, 0.0)


def first_sample(p):
    """The timer runs from power-on, but a wake as long as its period puts it off."""
    late = p["wake"] if p["wake"] >= p["sample_period"] else 0
    return late + p["sample_period"]


def with_simpy(p, simpy):
    env = simpy.Environment()
    controller = Controller(p)
    clock = [p["clocks"][0]]
    result = {}
    computing = [False]
    queue = simpy.Store(env)
    for _ in range(p["buffers"]):
        queue.items.append(Work(p["fixed"], p["cycles"]))

    def gpu():
        yield env.timeout(p["wake"])
        first = True
        for _ in range(p["buffers"]):
            work = yield queue.get()
            if first:
                work.fixed += p["stall"]
                first = False
            while True:
                begun, rate = env.now, clock[0]
                computing[0] = True
                try:
                    yield env.timeout(work.left(rate))
                    break
                except simpy.Interrupt:
                    work.spend(env.now - begun, rate)
            computing[0] = False
            result["end_ns"], result["pstate"] = env.now, controller.pstate + 1
            yield env.timeout(p["buffer_gap"])
        timer.interrupt()

    def sampler():
        first = first_sample(p)
        length = first - p["wake"]
        try:
            yield env.timeout(first)
            while True:
                before = controller.pstate
                controller.sample(length / p["sample_period"])
                length = p["sample_period"]
                if controller.pstate != before:
                    clock[0] = p["clocks"][controller.pstate]
                    # Between two buffers nobody waits at the old clock.
                    if computing[0]:
                        running.interrupt()
                yield env.timeout(p["sample_period"])
        except simpy.Interrupt:
            pass

    running = env.process(gpu())
    timer = env.process(sampler())
    env.run()
    return result


def plain(p):
    """The same without a library: one loop that knows what can come next."""
    controller = Controller(p)
    clock = p["clocks"][0]
    sample_at, length = first_sample(p), first_sample(p) - p["wake"]
    now, end = p["wake"], 0
    for n in range(p["buffers"]):
        while sample_at <= now:
            controller.sample(length / p["sample_period"])
            clock, length = p["clocks"][controller.pstate], p["sample_period"]
            sample_at += p["sample_period"]
        work = Work(p["fixed"] + (p["stall"] if n == 0 else 0), p["cycles"])
        end = now + work.left(clock)
        while sample_at < end:
            work.spend(sample_at - now, clock)
            now = sample_at
            controller.sample(length / p["sample_period"])
            clock, length = p["clocks"][controller.pstate], p["sample_period"]
            sample_at += p["sample_period"]
            end = now + work.left(clock)
        now = end + p["buffer_gap"]
    return {"end_ns": end, "pstate": controller.pstate + 1}


def main():
    with open(sys.argv[1]) as file:
        parameters = json.load(file)["parameters"]
    if "--plain" in sys.argv:
        began = time.process_time()
        result = plain(parameters)
    else:
        import simpy

        began = time.process_time()
        result = with_simpy(parameters, simpy)
    print(json.dumps({**result, "cpu_s": time.process_time() - began}))


main()
