package mem_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/mem"
	"github.com/yare-project/yare/store/storetest"
)

// TestCheckImmutable changes a value that the store holds, and wants it found at each of the moments when the store looks.
func TestCheckImmutable(t *testing.T) {
	for name, then := range map[string]func(storetest.TB, store.Store, store.Table){
		"replaced": func(t storetest.TB, s store.Store, a store.Table) {
			storetest.Commit(t, s, storetest.Put(a, "x", store.Any(), "new"))
		},
		"deleted": func(t storetest.TB, s store.Store, a store.Table) {
			storetest.Commit(t, s, storetest.Remove(a, "x", store.Any()))
		},
		"out of the ring": func(t storetest.TB, s store.Store, a store.Table) {
			for i := range 100 {
				storetest.Commit(t, s, storetest.Put(a, fmt.Sprint(i), store.Any(), "other"))
			}
		},
		"closed": func(t storetest.TB, s store.Store, _ store.Table) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			found := make(chan error, 100)
			s := mem.New(mem.Config{CheckImmutable: true, RingBytes: 4 << 10, OnMutation: func(err error) { found <- err }})
			defer s.Close()
			a := storetest.Table(t, s, "a")
			storetest.Commit(t, s, storetest.Put(a, "x", store.Absent(), "as it was"))
			it, _ := a.Get("x")
			it.Value.(*storetest.Note).Text = "as it should not be"
			then(t, s, a)
			select {
			case err := <-found:
				if !strings.Contains(err.Error(), `"x"`) {
					t.Errorf("the report names no key: %v", err)
				}
			default:
				t.Error("a changed value was not found")
			}
		})
	}
}
