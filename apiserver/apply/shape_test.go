package apply

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The kinds that a cluster writes most must have shapes.
func TestShapesAreKnown(t *testing.T) {
	for _, obj := range []any{corev1.Pod{}, corev1.ConfigMap{}, corev1.Event{}, corev1.Service{}, corev1.Node{}, corev1.Secret{}, appsv1.Deployment{}, appsv1.ReplicaSet{},
		coordinationv1.Lease{}, discoveryv1.EndpointSlice{}, rbacv1.Role{}} {
		ty := reflect.TypeOf(obj)
		if newObjectShaper(ty, "status") == nil {
			t.Errorf("%s has none: because of %s", ty, unshaped(ty, nil))
		}
	}
}

// unshaped finds the innermost type without a shape.
func unshaped(t reflect.Type, within []reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return unshaped(t.Elem(), within)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i).Type; newShaper(f) == nil && len(within) < 20 {
				return t.String() + "." + t.Field(i).Name + " " + unshaped(f, append(within, t))
			}
		}
	}
	return t.String()
}
