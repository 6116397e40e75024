package operators

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	mooredCondition = "Moored"
	castOff         = "harbour.yare.dev/cast-off" // finalizer
)

// BoatReconciler gives boats their berths.
type BoatReconciler struct{ client.Client }

// Reconcile moors one boat, or lets it go.
func (r *BoatReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	boat := &Boat{}
	if err := r.Get(ctx, req.NamespacedName, boat); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !boat.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(boat, castOff) {
			return ctrl.Result{}, r.Update(ctx, boat)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(boat, castOff) {
		if err := r.Update(ctx, boat); err != nil {
			return ctrl.Result{}, err
		}
	}
	berth := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: boat.Namespace, Name: boat.Name + "-berth"}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, berth, func() error {
		berth.Data = map[string]string{"rig": boat.Spec.Rig}
		return controllerutil.SetControllerReference(boat, berth, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	boat.Status.Berth = berth.Name
	meta.SetStatusCondition(&boat.Status.Conditions, metav1.Condition{Type: mooredCondition, Status: metav1.ConditionTrue, Reason: "Berthed", ObservedGeneration: boat.Generation})
	return ctrl.Result{}, r.Status().Update(ctx, boat)
}

// SetupWithManager has the reconciler watch boats and their berths.
func (r *BoatReconciler) SetupWithManager(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).For(&Boat{}).Owns(&corev1.ConfigMap{}).Complete(r)
}
