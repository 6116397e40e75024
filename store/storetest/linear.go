package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/yare-project/yare/store"
)

// testLinearizable records what concurrent clients saw of a few keys and asks porcupine for an order that explains it.
//
// Two orders exist and each must be one: that of proposals, which decides which writes conflict, and that of visibility, which decides
// what reads see. A conflict tells of a state that isn't visible yet, so it takes no part in the second.
func testLinearizable(t *testing.T, open Opener) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range uint64(4) {
		history := record(t, open, rand.NewPCG(seed, round))
		var visible, proposed []porcupine.Operation
		for _, op := range history {
			in, out := op.Input.(input), op.Output.(output)
			if in.op == "get" || !out.conflict {
				visible = append(visible, op)
			}
			if in.op != "get" {
				proposed = append(proposed, op)
			}
		}
		for name, ops := range map[string][]porcupine.Operation{"visible": visible, "proposed": proposed} {
			if got := porcupine.CheckOperationsTimeout(registers, ops, Patience); got != porcupine.Ok {
				t.Fatalf("seed %d, round %d: the %s history of %d operations is not linearizable: %v", seed, round, name, len(ops), got)
			}
		}
	}
}

type input struct {
	op, key string
	rev     store.Revision // what "at" and "delete" expect
}

type output struct {
	conflict bool
	exists   bool
	rev      store.Revision
}

// registers is the sequential meaning of the operations: one register per key that holds the revision of its last write, or zero.
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(input).key
			byKey[key] = append(byKey[key], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range byKey {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return store.Revision(0) },
	Step: func(state, in, out any) (bool, any) {
		current, i, o := state.(store.Revision), in.(input), out.(output)
		holds := true
		switch i.op {
		case "get":
			return o.rev == current && o.exists == (current != 0), current
		case "create":
			holds = current == 0
		case "at", "delete":
			holds = current != 0 && current == i.rev
		}
		switch {
		case o.conflict:
			return !holds, current
		case i.op == "delete":
			return holds, store.Revision(0)
		}
		return holds && o.rev > current, o.rev
	},
}

func record(t *testing.T, open Opener, source rand.Source) []porcupine.Operation {
	s, _ := open(t)
	defer s.Close()
	a := Table(t, s, "a")
	const clients, steps = 6, 60
	start := time.Now()
	random := rand.New(source)
	var wg sync.WaitGroup
	histories := make([][]porcupine.Operation, clients)
	for c := range clients {
		random := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		wg.Go(func() {
			known := map[string]store.Revision{}
			for range steps {
				in := draw(random, known)
				call := time.Since(start).Nanoseconds()
				out, err := perform(s, a, in)
				if err != nil {
					t.Errorf("%v: %v", in, err)
					return
				}
				known[in.key] = out.rev
				histories[c] = append(histories[c], porcupine.Operation{
					ClientId: c, Input: in, Call: call, Output: out, Return: time.Since(start).Nanoseconds(),
				})
			}
		})
	}
	wg.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	return all
}

func draw(random *rand.Rand, known map[string]store.Revision) input {
	key := fmt.Sprint("k", random.IntN(3))
	op := []string{"get", "get", "create", "any", "at", "at", "delete"}[random.IntN(7)]
	return input{op: op, key: key, rev: known[key]}
}

func perform(s store.Store, a store.Table, in input) (output, error) {
	var w store.Write
	switch in.op {
	case "get":
		it, ok := a.Get(in.key)
		return output{exists: ok, rev: it.Revision}, nil
	case "create":
		w = Put(a, in.key, store.Absent(), "")
	case "any":
		w = Put(a, in.key, store.Any(), "")
	case "at":
		w = Put(a, in.key, store.At(in.rev), "")
	case "delete":
		w = Remove(a, in.key, store.At(in.rev))
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	rev, err := s.Commit(ctx, w)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		return output{conflict: true, rev: conflict.Current.Revision}, nil
	}
	return output{exists: !w.Delete, rev: rev}, err
}
