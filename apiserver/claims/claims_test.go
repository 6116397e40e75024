package claims_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/apiserver/claims"
	"github.com/yare-project/yare/kind"
)

func ip(v string) []kind.Claim { return []kind.Claim{{Pool: "ip", Value: v}} }

func reserve(x *claims.Index, holder types.UID, c []kind.Claim) bool {
	l := x.Lock()
	defer l.Unlock()
	return l.Reserve(holder, c) == nil
}

func TestValueHasOneHolder(t *testing.T) {
	x := claims.New()
	if !reserve(x, "a", ip("1")) || reserve(x, "b", ip("1")) {
		t.Fatal("two hold one value")
	}
	x.Release("b", ip("1"))
	if reserve(x, "b", ip("1")) {
		t.Fatal("a stranger released it")
	}
	x.Release("a", ip("1"))
	if !reserve(x, "b", ip("1")) {
		t.Fatal("it was not released")
	}
}

func TestReservationIsWholeOrNothing(t *testing.T) {
	x := claims.New()
	reserve(x, "a", ip("2"))
	if reserve(x, "b", []kind.Claim{{Pool: "ip", Value: "1"}, {Pool: "ip", Value: "2"}}) {
		t.Fatal("took what is taken")
	}
	if x.Len() != 1 {
		t.Fatalf("%d values are held after a refusal", x.Len())
	}
	if !reserve(x, "c", []kind.Claim{{Pool: "port", Value: "2"}}) {
		t.Fatal("pools mix")
	}
}

// The value of an object that is rewritten, or whose rewrite fails, stays its own in every order of events.
func TestStatesOfOneHolderCountApart(t *testing.T) {
	x := claims.New()
	reserve(x, "a", ip("1"))
	reserve(x, "a", ip("1")) // a rewrite is on its way
	x.Release("a", ip("1"))  // it failed
	if reserve(x, "b", ip("1")) {
		t.Fatal("the failed rewrite took the address away")
	}
	reserve(x, "a", ip("1"))
	x.Release("a", ip("1"))
	x.Release("a", ip("1"))
	if x.Len() != 0 {
		t.Fatal("the address is never free again")
	}
}

func TestRandomHistories(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	x := claims.New()
	type state struct {
		holder types.UID
		claim  kind.Claim
	}
	var live []state
	for range 20000 {
		if len(live) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(live))
			x.Release(live[i].holder, []kind.Claim{live[i].claim})
			live = append(live[:i], live[i+1:]...)
			continue
		}
		s := state{types.UID(fmt.Sprint(rng.IntN(5))), kind.Claim{Pool: "ip", Value: fmt.Sprint(rng.IntN(8))}}
		free := true
		for _, l := range live {
			free = free && (l.claim != s.claim || l.holder == s.holder)
		}
		if got := reserve(x, s.holder, []kind.Claim{s.claim}); got != free {
			t.Fatalf("seed %d: reserve(%v) = %v with %v", seed, s, got, live)
		}
		if free {
			live = append(live, s)
		}
	}
}
