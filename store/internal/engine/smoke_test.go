package engine

import (
	"context"
	"testing"

	"github.com/yare-project/yare/store"
)

type word string

func (w word) Encode() ([]byte, error) { return []byte(w), nil }
func (w word) Size() int               { return len(w) }

func TestSmoke(t *testing.T) {
	e := New(Config{})
	defer e.Close()
	tab, err := e.Table(store.TableConfig{Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	w, _ := tab.Watch(0)
	rev, err := e.Commit(context.Background(), store.Write{Table: tab, Key: "a", Expect: store.Absent(), Make: func(store.Revision) store.Value { return word("x") }})
	if err != nil || rev != 1 {
		t.Fatal(rev, err)
	}
	evs, err := w.Next(context.Background())
	t.Log(evs, err, tab.Len())
}
