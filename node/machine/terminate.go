package machine

// terminate plans for a pod that must end, or has: stop what runs in order, give the sandbox back, and, if the pod is being deleted,
// remove what is left and tell the API.
func (p *planner) terminate() {
	if p.Memory.TornDown {
		p.finishDeletion()
		return
	}
	if p.stop() {
		return
	}
	if p.Gone || p.Pod.DeletionTimestamp != nil {
		p.after(p.Memory.Cleanup, Action{Op: TearDown})
		return
	}
	if !p.Memory.Released {
		p.after(p.Memory.Cleanup, Action{Op: Release})
	}
	p.collect()
}

// stop plans the end of the containers and then of the sandboxes, and answers whether some of it is still to come.
func (p *planner) stop() bool {
	if active := p.Observed.Active(); len(active) > 0 {
		p.stopContainers(active)
		return true
	}
	if p.busy(StartContainer) || p.busy(CreateSandbox) || p.busy(SetUpVolumes) || p.busy(KillContainer) {
		return true
	}
	more := false
	for i := range p.Observed.Sandboxes {
		s := &p.Observed.Sandboxes[i]
		if !p.Memory.Stopped[s.ID] {
			p.after(p.Memory.KillFailures[s.ID], Action{Op: StopSandbox, SandboxID: s.ID})
			more = true
		}
	}
	return more
}

// stopContainers plans the end of the running containers: the main ones at once, then sidecars in reverse order, each after those that
// follow it. When the pod's grace is over, all that is left ends together.
func (p *planner) stopContainers(active []*Container) {
	since := p.Memory.TerminatingSince
	if since.IsZero() {
		since = p.Now
	}
	sidecars := p.sidecars()
	turn := lastTurn(active, sidecars)
	for _, c := range active {
		grace := p.grace(c, KillPod)
		left := max(since.Add(grace).Sub(p.Now), minGrace)
		end := since.Add(grace)
		n, isSidecar := sidecars[c.Name]
		switch {
		case !isSidecar:
			p.killWithin(c, KillPod, "", grace)
		case turn == n:
			p.killWithin(c, KillPod, "", min(left, max(grace, minGrace)))
		case !p.Now.Before(end):
			p.killWithin(c, KillPod, "", minGrace)
		default:
			p.wake(end)
		}
	}
}

// lastTurn answers the highest sidecar index among the active, or -1 while a main container is active.
func lastTurn(active []*Container, sidecars map[string]int) int {
	turn := -1
	for _, c := range active {
		n, isSidecar := sidecars[c.Name]
		if !isSidecar {
			return -1
		}
		turn = max(turn, n)
	}
	return turn
}

func (p *planner) sidecars() map[string]int {
	out := map[string]int{}
	for i := range p.Pod.Spec.InitContainers {
		if IsSidecar(&p.Pod.Spec.InitContainers[i]) {
			out[p.Pod.Spec.InitContainers[i].Name] = i
		}
	}
	return out
}

// finishDeletion plans the last step: the API may forget the pod once it has its last status.
func (p *planner) finishDeletion() {
	if p.Gone || p.Memory.Deleted {
		p.plan.Gone = true
		return
	}
	if p.StatusWritten {
		p.after(p.Memory.Delete, Action{Op: DeletePod})
	}
}
