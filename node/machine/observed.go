package machine

import (
	"sort"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// State is where a container stands.
type State int

// The states only move forward for one container id.
const (
	Created State = iota
	Running
	Exited
	Unknown
)

// Container is one container as the runtime has it.
type Container struct {
	ID, Name, SandboxID  string
	State                State
	Attempt              int    // restart count
	Hash                 string // of the spec it was made from
	CreatedAt, StartedAt time.Time
	FinishedAt           time.Time
	ExitCode             int32
	Reason, Message      string
	Image, ImageID       string // as in a container status
	ImageRef             string
	LogPath              string
	Resources            *runtimeapi.LinuxContainerResources
	User                 *runtimeapi.LinuxContainerUser
	StopSignal           runtimeapi.Signal
	TerminationPath      string // in the container; from its annotations
	TerminationPolicy    string
}

// Sandbox is one pod sandbox as the runtime has it.
type Sandbox struct {
	ID        string
	Ready     bool
	Attempt   uint32
	CreatedAt time.Time
	IPs       []string
}

// Observed is what the runtime has of one pod. It is owned by one goroutine.
type Observed struct {
	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first
}

// Latest returns the newest container of that name, or nil.
func (o *Observed) Latest(name string) *Container {
	for i := range o.Containers {
		if o.Containers[i].Name == name {
			return &o.Containers[i]
		}
	}
	return nil
}

// LatestIn returns the newest container of that name in one sandbox, or nil.
func (o *Observed) LatestIn(sandbox, name string) *Container {
	for i := range o.Containers {
		if o.Containers[i].Name == name && o.Containers[i].SandboxID == sandbox {
			return &o.Containers[i]
		}
	}
	return nil
}

// Container returns a container by id, or nil.
func (o *Observed) Container(id string) *Container {
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			return &o.Containers[i]
		}
	}
	return nil
}

// Sandbox returns the newest sandbox, or nil.
func (o *Observed) Sandbox() *Sandbox {
	if len(o.Sandboxes) == 0 {
		return nil
	}
	return &o.Sandboxes[0]
}

// ReadySandbox returns the newest sandbox if it is ready, or nil.
func (o *Observed) ReadySandbox() *Sandbox {
	if s := o.Sandbox(); s != nil && s.Ready {
		return s
	}
	return nil
}

// PutContainer takes in news of a container. News that would move a container backwards is old news and is dropped.
func (o *Observed) PutContainer(c Container) {
	if old := o.Container(c.ID); old != nil {
		if c.State < old.State && old.State != Unknown {
			return
		}
		if c.SandboxID == "" {
			c.SandboxID = old.SandboxID
		}
		*old = c
		return
	}
	o.Containers = append(o.Containers, c)
	sort.SliceStable(o.Containers, func(i, j int) bool {
		a, b := o.Containers[i], o.Containers[j]
		if a.Attempt != b.Attempt {
			return a.Attempt > b.Attempt
		}
		return a.CreatedAt.After(b.CreatedAt)
	})
}

// PutSandbox takes in news of a sandbox. One that was not ready never becomes ready again.
func (o *Observed) PutSandbox(s Sandbox) {
	for i := range o.Sandboxes {
		if o.Sandboxes[i].ID == s.ID {
			s.Ready = s.Ready && o.Sandboxes[i].Ready
			if len(s.IPs) == 0 {
				s.IPs = o.Sandboxes[i].IPs
			}
			o.Sandboxes[i] = s
			return
		}
	}
	o.Sandboxes = append(o.Sandboxes, s)
	sort.SliceStable(o.Sandboxes, func(i, j int) bool {
		a, b := o.Sandboxes[i], o.Sandboxes[j]
		if a.Attempt != b.Attempt {
			return a.Attempt > b.Attempt
		}
		return a.CreatedAt.After(b.CreatedAt)
	})
}

// DropContainer forgets a container that the runtime has removed.
func (o *Observed) DropContainer(id string) {
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			o.Containers = append(o.Containers[:i:i], o.Containers[i+1:]...)
			return
		}
	}
}

// DropSandbox forgets a sandbox, and what was in it.
func (o *Observed) DropSandbox(id string) {
	for i := range o.Sandboxes {
		if o.Sandboxes[i].ID == id {
			o.Sandboxes = append(o.Sandboxes[:i:i], o.Sandboxes[i+1:]...)
			break
		}
	}
	kept := o.Containers[:0:0]
	for _, c := range o.Containers {
		if c.SandboxID != id {
			kept = append(kept, c)
		}
	}
	o.Containers = kept
}

// Active lists the containers that run, or may.
func (o *Observed) Active() []*Container {
	var out []*Container
	for i := range o.Containers {
		if s := o.Containers[i].State; s == Running || s == Unknown {
			out = append(out, &o.Containers[i])
		}
	}
	return out
}
