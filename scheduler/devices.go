package scheduler

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler/dra"
	"github.com/yare-project/yare/scheduler/framework"
)

// newDevices makes the book of devices; it writes as the scheduler does.
func (s *Scheduler) newDevices() *dra.Book {
	c := s.config
	return dra.NewBook(dra.Config{Transport: c.Transport, Clock: c.Clock, Log: c.Log, Events: c.Events, Go: s.tasks.Go, Context: func() context.Context { return s.ctx },
		Impatient: func() bool { return s.tasks.trial },
		Freed: func() {
			if s.groups.deciding != nil {
				return // a plan takes back what it set aside itself: nothing is free that was not
			}
			s.inbox.tell(func(s *Scheduler) {
				s.wake(&framework.Event{Kind: framework.ResourceClaimChanged, Slot: -1, Freed: true})
			})
		}})
}

// watchDevices has changes of devices and of claims on them told to the book, in the order of decisions, and wakes the pods that they may let go.
func (w *world) watchDevices() {
	w.resourceClaims.OnChange(func(old, new *resourcev1.ResourceClaim) {
		about := client.Newest(old, new)
		w.inbox.tell(func(s *Scheduler) {
			freed := s.devices.SetClaim(old, new)
			s.wake(&framework.Event{Kind: framework.ResourceClaimChanged, Slot: -1, Namespace: about.Namespace, Name: about.Name, Freed: freed})
		})
	})
	w.slices.OnChange(func(old, new *resourcev1.ResourceSlice) {
		name := client.Newest(old, new).Name
		w.inbox.tell(func(s *Scheduler) {
			s.devices.SetSlice(name, new)
			s.wake(&framework.Event{Kind: framework.DevicesChanged, Slot: -1, Name: name})
		})
	})
	w.deviceClasses.OnChange(func(old, new *resourcev1.DeviceClass) {
		name := client.Newest(old, new).Name
		w.inbox.tell(func(s *Scheduler) {
			s.devices.SetClass(name, new)
			s.wake(&framework.Event{Kind: framework.DevicesChanged, Slot: -1, Name: name})
		})
	})
}
