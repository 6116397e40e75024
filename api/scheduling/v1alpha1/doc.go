// Package v1alpha1 holds the wire types of the group scheduling.yare.io: SchedulingPolicy. It has no behaviour: kinds/yarescheduling says what is valid,
// scheduler/policy what it does.
package v1alpha1
