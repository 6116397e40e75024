package fairness

import (
	"maps"
	"math"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/utils/ptr"
)

// rebuild makes the rules anew from the objects.
func (c *Controller) rebuild() {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := maps.Clone(c.levelObjects)
	maps.DeleteFunc(wanted, func(_ string, o *flowcontrolv1.PriorityLevelConfiguration) bool { return !usable(o) })
	for _, o := range c.cfg.Levels {
		if wanted[o.Name] == nil {
			wanted[o.Name] = o
		}
	}
	c.retire(wanted)
	for name, o := range wanted {
		if c.levels[name] == nil {
			c.levels[name] = newLevel(name, c.cfg.Clock, c.epoch, c.wake)
		}
		l := c.levels[name]
		l.mu.Lock()
		l.object, l.quiescing = o, false
		l.mu.Unlock()
	}
	c.divide()
	c.borrow()
	c.publish(wanted)
}

// usable tells an object that validation would let pass.
func usable(o *flowcontrolv1.PriorityLevelConfiguration) bool {
	if o.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt {
		return o.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt
	}
	if l := o.Spec.Limited; l == nil || o.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		return false
	} else if q := l.LimitResponse.Queuing; l.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue {
		return q != nil && q.HandSize > 0 && q.HandSize <= q.Queues && q.HandSize <= maxHand && q.QueueLengthLimit > 0
	}
	return true
}

// retire takes out levels that nobody wants; those with requests stay until they are idle.
func (c *Controller) retire(wanted map[string]*flowcontrolv1.PriorityLevelConfiguration) {
	for name, l := range c.levels {
		if wanted[name] != nil {
			continue
		}
		l.mu.Lock()
		l.quiescing = true
		l.gone = l.set.idle()
		if l.gone {
			delete(c.levels, name)
		}
		l.mu.Unlock()
	}
}

// divide gives each level its nominal seats, by its shares.
func (c *Controller) divide() {
	sum := 0.0
	for _, l := range c.levels {
		of, _, _ := sharesOf(l.object)
		sum += float64(of)
	}
	c.nominal = 0
	for _, l := range c.levels {
		of, lendable, borrowing := sharesOf(l.object)
		nominal := 0
		if of > 0 {
			nominal = int(math.Ceil(float64(c.cfg.Seats) * float64(of) / sum))
		}
		most := c.cfg.Seats
		if borrowing != nil {
			most = percent(nominal, *borrowing)
		}
		l.mu.Lock()
		l.shares = shares{nominal: nominal, lowest: nominal - percent(nominal, lendable), highest: nominal + most}
		l.exempt = l.object.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
		l.queueing = queueing{exempt: l.exempt}
		if limited := l.object.Spec.Limited; limited != nil && limited.LimitResponse.Queuing != nil {
			q := limited.LimitResponse.Queuing
			l.queueing = queueing{queues: int(q.Queues), hand: int(q.HandSize), length: int(q.QueueLengthLimit)}
		}
		l.most = mostSeats(nominal, l.queueing.hand)
		l.mu.Unlock()
		c.nominal += nominal
	}
}

func percent(of int, n int32) int { return int(math.Round(float64(of) * float64(n) / 100)) }

func sharesOf(o *flowcontrolv1.PriorityLevelConfiguration) (shares, lendable int32, borrowing *int32) {
	if l := o.Spec.Limited; l != nil {
		return ptr.Deref(l.NominalConcurrencyShares, 30), ptr.Deref(l.LendablePercent, 0), l.BorrowingLimitPercent
	}
	if e := o.Spec.Exempt; e != nil {
		return ptr.Deref(e.NominalConcurrencyShares, 0), ptr.Deref(e.LendablePercent, 0), nil
	}
	return 0, 0, nil
}

// borrow looks at what each level could use, and sets its limit for the next period.
func (c *Controller) borrow() {
	names := slices.Sorted(maps.Keys(c.levels))
	list := make([]borrower, len(names))
	for i, name := range names {
		l := c.levels[name]
		now := l.now()
		l.mu.Lock()
		l.set.advance(now)
		l.demand.update(l.set.demand.harvest(l.set.inUse + l.set.waitingSeats))
		list[i] = l.borrower
		l.mu.Unlock()
	}
	var seats []int
	seats, c.fair = limits(c.nominal, list)
	for i, name := range names {
		l := c.levels[name]
		now := l.now()
		l.mu.Lock()
		l.target = list[i].claim().target
		l.set.configure(now, l.queueing, seats[i])
		l.arm(now)
		l.mu.Unlock()
	}
}

// publish compiles the schemas that name a level which is there.
func (c *Controller) publish(wanted map[string]*flowcontrolv1.PriorityLevelConfiguration) {
	p := &plan{}
	schemas := maps.Clone(c.schemaObjects)
	for _, o := range c.cfg.Schemas {
		if have := schemas[o.Name]; have == nil || wanted[have.Spec.PriorityLevelConfiguration.Name] == nil {
			schemas[o.Name] = o
		}
	}
	kept := map[flowKey]*stats{}
	for _, o := range schemas {
		object := wanted[o.Spec.PriorityLevelConfiguration.Name]
		if object == nil {
			continue // dangling
		}
		f := compile(o)
		f.level = c.levels[object.Name]
		f.levelHeader = []string{string(object.UID)}
		f.queued = f.level.queueing.queues > 1
		key := flowKey{object.Name, o.Name}
		if kept[key] = c.stats[key]; kept[key] == nil {
			kept[key] = &stats{}
		}
		f.stats = kept[key]
		p.flows = append(p.flows, f)
		if o.Name == flowcontrolv1.FlowSchemaNameCatchAll {
			p.catchAll = f
		}
	}
	slices.SortFunc(p.flows, order)
	c.stats = kept
	c.plan.Store(p)
}
