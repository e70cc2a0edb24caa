/* Views and agreements under deaths, losses, stops, cuts: many seeds of each kind. */
#include "simulator.h"
#include <criterion/criterion.h>

static uint64_t seeds(uint64_t usual) {
    const char *text = getenv("ROTA_TEST_SEEDS");
    return text != NULL ? strtoull(text, NULL, 10) : usual;
}

static void check(const struct sim *sim, bool holds, const char *what, int rank) {
    const char *wrong = sim_wrong(sim);
    cr_assert_null(wrong, "seed %llu, n %d: %s", (unsigned long long)sim->seed, sim->n, wrong);
    cr_assert(holds, "seed %llu, n %d, rank %d: %s (epoch %u, members %x, isolated %d)",
              (unsigned long long)sim->seed, sim->n, rank, what, view_epoch(sim->ranks[rank].view),
              sim_members(sim, rank), sim->ranks[rank].isolated);
}

static uint32_t living(const struct sim *sim) {
    uint32_t set = 0;
    for (int r = 0; r < sim->n; r++)
        set |= (sim->ranks[r].dead ? 0u : 1u) << r;
    return set;
}

static void start_agreements(struct sim *sim, int64_t within_ms) {
    for (int t = 0; t < SIM_TOPICS; t++)
        for (int r = 0; r < sim->n; r++)
            sim_call(sim, sim->now + sim_random(sim, (uint32_t)within_ms) * SIM_MS, sim_agree,
                     r * SIM_TOPICS + t);
}

/* Any number of deaths, all of them proved: the living go on together and all agreements end. */
Test(machines, deaths_at_any_step) {
    for (uint64_t seed = 1; seed <= seeds(3000); seed++) {
        struct sim sim;
        sim_begin(&sim, 2 + (int)(seed % 7), seed);
        sim.drop_percent = seed % 3 == 0 ? 2 : 0;
        sim.slow_percent = seed % 5 == 0 ? 5 : 0;
        sim.reorder = seed % 4 == 0;
        int deaths = (int)sim_random(&sim, (uint32_t)sim.n);
        for (int i = 0; i < deaths; i++) {
            int rank = (int)sim_random(&sim, (uint32_t)sim.n - 1);
            if (sim_random(&sim, 2) == 0)
                sim.ranks[rank].die_after = (int)sim_random(&sim, 40);
            else
                sim_call(&sim, sim.now + sim_random(&sim, 200) * SIM_MS, sim_kill, rank);
        }
        start_agreements(&sim, 300);
        sim_run(&sim, 30000 * SIM_MS);
        uint32_t alive = living(&sim);
        for (int r = 0; r < sim.n; r++) {
            if (sim.ranks[r].dead)
                continue;
            check(&sim, sim.ranks[r].isolated == 0, "isolated though all deaths are proved", r);
            check(&sim, sim_members(&sim, r) == alive, "the view is not those that live", r);
            for (int t = 0; t < SIM_TOPICS; t++)
                check(&sim, sim.ranks[r].agreed[t], "an agreement has not ended", r);
        }
        sim_end(&sim);
    }
}

/* Suspicions against the living: nobody is removed, also when some are slow. */
Test(machines, suspicion_alone_removes_nobody) {
    for (uint64_t seed = 1; seed <= seeds(1000); seed++) {
        struct sim sim;
        sim_begin(&sim, 2 + (int)(seed % 7), seed);
        for (int i = 0; i < 3; i++)
            sim_call(&sim, sim.now + sim_random(&sim, 50) * SIM_MS, sim_suspect,
                     (int)(sim_random(&sim, (uint32_t)sim.n) * SIM_RANKS +
                           sim_random(&sim, (uint32_t)sim.n)));
        start_agreements(&sim, 100);
        sim_run(&sim, 10000 * SIM_MS);
        for (int r = 0; r < sim.n; r++) {
            check(&sim, sim.ranks[r].isolated == 0 && sim.ranks[r].changes == 0, "it changed", r);
            check(&sim, view_deadline(sim.ranks[r].view) == INT64_MAX, "it is not at rest", r);
            for (int t = 0; t < SIM_TOPICS; t++)
                check(&sim, sim.ranks[r].agreed[t], "an agreement has not ended", r);
        }
        sim_end(&sim);
    }
}

static bool has_right(const struct sim *sim, uint32_t side) {
    int count = __builtin_popcount(side);
    return 2 * count > sim->n || (2 * count == sim->n && (side & 1) != 0);
}

/* A cut: the side with more than half goes on, or that with half and the lowest rank; the other is
 * isolated in time, and so are both when there are more than two parts without such a side. */
Test(machines, partition) {
    for (uint64_t seed = 1; seed <= seeds(2000); seed++) {
        struct sim sim;
        sim_begin(&sim, 2 + (int)(seed % 7), seed);
        uint32_t all = (1u << sim.n) - 1, side = 1 + sim_random(&sim, all - 1);
        start_agreements(&sim, 60);
        sim_run(&sim, sim.now + sim_random(&sim, 40) * SIM_MS);
        sim_partition(&sim, side);
        int64_t begun = sim.now, last = begun;
        for (int r = 0; r < sim.n; r++) {
            int other = (int)sim_random(&sim, (uint32_t)sim.n);
            bool first_here = ((side >> r & 1 ? side : all & ~side) & ((1u << r) - 1)) == 0;
            for (int k = 0; k < sim.n && (side >> other & 1) == (side >> r & 1); k++)
                other = (other + 1) % sim.n;
            if (!first_here && sim_random(&sim, 2) == 0)
                continue; /* at least one of each side */
            int64_t when = begun + sim_random(&sim, 300) * SIM_MS;
            last = when > last ? when : last;
            sim_call(&sim, when, sim_suspect, r * SIM_RANKS + other);
        }
        sim_run(&sim, last + 2600 * SIM_MS);
        for (int r = 0; r < sim.n; r++) {
            uint32_t own = side >> r & 1 ? side : all & ~side;
            if (has_right(&sim, own)) {
                check(&sim, sim.ranks[r].isolated == 0, "isolated in the larger part", r);
                check(&sim, sim_members(&sim, r) == own, "the view is not the larger part", r);
            } else {
                check(&sim, sim.ranks[r].isolated == 1 && sim.ranks[r].changes == 0,
                      "not isolated in the smaller part", r);
                check(&sim, (sim.ranks[r].unreached & ~own) == (all & ~own),
                      "does not name whom it cannot reach", r);
            }
        }
        sim_end(&sim);
    }
}

/* Who was stopped and left behind learns it from the first message; nobody else is removed. */
Test(machines, stopped_rank_wakes_up) {
    for (uint64_t seed = 1; seed <= seeds(1000); seed++) {
        struct sim sim;
        sim_begin(&sim, 3 + (int)(seed % 6), seed);
        int stopped = (int)sim_random(&sim, (uint32_t)sim.n);
        int by = (stopped + 1 + (int)sim_random(&sim, (uint32_t)sim.n - 1)) % sim.n;
        start_agreements(&sim, 40);
        sim_call(&sim, sim.now + sim_random(&sim, 50) * SIM_MS, sim_stop, stopped);
        sim_call(&sim, sim.now + 100 * SIM_MS, sim_suspect, by * SIM_RANKS + stopped);
        sim_call(&sim, sim.now + 3000 * SIM_MS, sim_resume, stopped);
        sim_call(&sim, sim.now + 3010 * SIM_MS, sim_suspect, stopped * SIM_RANKS + by);
        sim_run(&sim, 9000 * SIM_MS);
        for (int r = 0; r < sim.n; r++) {
            uint32_t rest = ((1u << sim.n) - 1) & ~(1u << stopped);
            if (r == stopped)
                check(&sim, sim.ranks[r].isolated == 1, "woke up and does not know", r);
            else
                check(&sim, sim_members(&sim, r) == rest && sim.ranks[r].isolated == 0,
                      "the view is not the others", r);
        }
        sim_end(&sim);
    }
}

/* Everything at once. Who lives is in a view with those alone who live or were stopped, or knows
 * that it is isolated; there are never two views of one epoch, nor two results of one topic. */
Test(machines, everything_at_once) {
    for (uint64_t seed = 1; seed <= seeds(6000); seed++) {
        struct sim sim;
        sim_begin(&sim, 2 + (int)(seed % 7), seed);
        sim.drop_percent = (int)sim_random(&sim, 3) * 5;
        sim.slow_percent = (int)sim_random(&sim, 3) * 5;
        sim.slow_ms = 500;
        sim.reorder = seed % 2 == 0;
        start_agreements(&sim, 500);
        for (int i = 0; i < 6; i++) {
            int64_t when = sim.now + sim_random(&sim, 600) * SIM_MS;
            int rank = (int)sim_random(&sim, (uint32_t)sim.n);
            uint32_t what = sim_random(&sim, 10);
            sim.ranks[rank].proofs = what != 9;
            if (what < 3) {
                sim_call(&sim, when, sim_kill, rank);
            } else if (what < 5) {
                sim_call(&sim, when, sim_stop, rank);
                sim_call(&sim, when + sim_random(&sim, 3000) * SIM_MS, sim_resume, rank);
            } else if (what < 8) {
                int whom = (int)sim_random(&sim, (uint32_t)sim.n);
                sim_call(&sim, when, sim_suspect, rank * SIM_RANKS + whom);
            } else if (what == 8) {
                sim.ranks[rank].die_after = (int)sim_random(&sim, 40);
            }
        }
        sim_run(&sim, sim.now + sim_random(&sim, 300) * SIM_MS);
        if (sim_random(&sim, 2) == 0)
            sim_partition(&sim, sim_random(&sim, 1u << sim.n));
        sim_run(&sim, sim.now + sim_random(&sim, 2000) * SIM_MS);
        if (sim_random(&sim, 2) == 0)
            memset(sim.cut, 0, sizeof sim.cut);
        sim_run(&sim, 20000 * SIM_MS);
        for (int r = 0; r < sim.n; r++)
            sim.ranks[r].die_after = -1;
        sim_run(&sim, 25000 * SIM_MS);
        for (int r = 0; r < sim.n; r++)
            if (!sim.ranks[r].dead && sim.ranks[r].proofs)
                check(&sim,
                      sim.ranks[r].isolated > 0 || (sim_members(&sim, r) & ~living(&sim)) == 0,
                      "the view holds a dead rank", r);
        check(&sim, true, "", 0);
        sim_end(&sim);
    }
}
