package deployment

import appsv1 "k8s.io/api/apps/v1"

// NewSet is the ReplicaSet that a Deployment gets for its template as it is, without a number of replicas.
func NewSet(d *appsv1.Deployment) *appsv1.ReplicaSet { return (&view{d: d}).newSet() }
