package events_test

import (
	"testing"
	"time"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/core"
	_ "github.com/yare-project/yare/kinds/events"
)

// Events live as long as the cluster's settings say, and for ever where these say nothing.
func TestEventsExpire(t *testing.T) {
	for _, k := range core.Group.Kinds {
		if k.Names.Plural != "events" {
			continue
		}
		if k.TTL == nil || k.TTL(kind.Settings{EventTTL: time.Hour}) != time.Hour || k.TTL(kind.Settings{}) != 0 {
			t.Error("an Event's life is not that of the settings")
		}
		return
	}
	t.Fatal("no kind has the plural events")
}
