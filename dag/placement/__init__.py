"""Placement: which pool of slots each node of a graph runs on, and when. Pure; numbers of any one unit of time.

    problem      nodes, pools of slots, a schedule            slot_pool   free times and gaps of one pool
    ranks        upward and downward ranks, OCT               heuristics  HEFT, CPOP, PEFT
    planner      the schedule that the root uses              bounds      a lower bound of every schedule
    shape        levels, components, fusion, cuts, stages

A pool stands for a mesh: its slots are alike, and a value needs no transfer within it. A classic processor is a pool of one slot.

Source: ADR 0054; Topcuoglu 2002 (HEFT, CPOP); Arabnejad and Barbosa 2014 (PEFT).
"""
