package mem_test

import (
	"testing"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/mem"
	"github.com/yare-project/yare/store/storetest"
)

func open(storetest.TB) (store.Store, func(storetest.TB) store.Store) {
	return mem.New(mem.Config{CheckImmutable: true}), nil
}

func TestStore(t *testing.T) { storetest.Run(t, open) }
