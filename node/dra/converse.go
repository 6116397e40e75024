package dra

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// topic is what drivers are asked about claims: to prepare them, or to undo that.
type topic interface {
	// needed tells, when nobody else does anything to a claim, whether drivers have to be asked.
	needed(c *claim) (bool, error)
	// ask asks one driver, and answers the claims that it failed for.
	ask(ctx context.Context, driver string, list []*claim) map[*claim]error
	// end takes in that all drivers of a claim were asked; err joins what went wrong.
	end(c *claim, err error)
}

// converse has the drivers of claims asked, all at the same time. A driver is asked once about all claims that are free; one to which somebody else does something is asked
// about by itself, as soon as it is free. The error joins those of all claims, in the order of the list.
func (m *Manager) converse(ctx context.Context, t topic, list []*claim) error {
	var free []*claim
	var wg sync.WaitGroup
	errs := make([]error, len(list))
	for i, c := range list {
		select {
		case c.turn <- struct{}{}:
			free = append(free, c)
		default:
			wg.Go(func() {
				select {
				case c.turn <- struct{}{}:
					errs[i] = m.together(ctx, t, []*claim{c})[c]
				case <-ctx.Done():
					errs[i] = ctx.Err()
				}
			})
		}
	}
	for c, err := range m.together(ctx, t, free) {
		errs[slices.Index(list, c)] = err
	}
	wg.Wait()
	return errors.Join(errs...)
}

// together asks about claims whose turns are taken, and gives back the turn of each when the last of its drivers has answered.
func (m *Manager) together(ctx context.Context, t topic, list []*claim) map[*claim]error {
	failed := map[*claim]error{}
	left := map[*claim]int{}
	settle := func(c *claim) {
		t.end(c, failed[c])
		<-c.turn
	}
	var ask []*claim
	for _, c := range list {
		needed, err := t.needed(c)
		switch {
		case err != nil:
			failed[c] = err
			<-c.turn
		case !needed:
			<-c.turn
		case len(c.Drivers) == 0:
			settle(c)
		default:
			ask = append(ask, c)
			left[c] = len(c.Drivers)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	names, by := byDriver(ask)
	for _, name := range names {
		wg.Go(func() {
			bad := t.ask(ctx, name, by[name])
			mu.Lock()
			defer mu.Unlock()
			for _, c := range by[name] {
				failed[c] = join(failed[c], bad[c])
				if left[c]--; left[c] == 0 {
					settle(c)
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// join is errors.Join without a wrapper around one error.
func join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// byDriver sorts claims by the drivers that have to do with them.
func byDriver(list []*claim) (names []string, by map[string][]*claim) {
	by = map[string][]*claim{}
	for _, c := range list {
		for _, name := range c.Drivers {
			by[name] = append(by[name], c)
		}
	}
	for name := range by {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, by
}
