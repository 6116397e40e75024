package scheduler

import (
	"math/rand/v2"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// NewProfile makes a profile with the default plugins, for programs that decide without a cluster. rng chooses among equally good nodes.
func NewProfile(name string, handle framework.Handle, rng *rand.Rand) (*framework.Profile, error) {
	return buildProfile(ProfileConfig{SchedulerName: name}, plugins.Registry(), handle, rng)
}
