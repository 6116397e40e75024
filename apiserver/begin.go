package apiserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/yare-project/yare/store"
)

// begun is the mark that the server leaves in a new store.
type begun struct{}

func (begun) Encode() ([]byte, error) { return []byte("begun"), nil }
func (begun) Size() int               { return 16 }

// begin makes a new store's first write. Without it an empty list would be at resource version "0", which clients take for "any version will
// do": a watch from there would begin with a state that they have already seen.
func begin(s store.Store) error {
	if s.Revision() > 0 {
		return nil
	}
	table, err := s.Table(store.TableConfig{Name: "gate/marks",
		Decode: func(string, store.Revision, []byte) (store.Value, error) { return begun{}, nil }})
	if err != nil {
		return fmt.Errorf("open the table of the server's own marks: %w", err)
	}
	_, err = s.Commit(context.Background(), store.Write{Table: table, Key: "begun", Expect: store.Absent(), Make: func(store.Revision) store.Value { return begun{} }})
	var there *store.ConflictError
	if err != nil && !errors.As(err, &there) {
		return fmt.Errorf("make the first write of a new store: %w", err)
	}
	return nil
}
