package operators

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// SetupWebhook serves the boats' webhooks.
func SetupWebhook(m ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(m, &Boat{}).WithDefaulter(boatDefaulter{}).WithValidator(boatValidator{}).Complete()
}

type boatDefaulter struct{}

func (boatDefaulter) Default(_ context.Context, boat *Boat) error {
	if boat.Spec.Rig == "" {
		boat.Spec.Rig = "sloop"
	}
	return nil
}

type boatValidator struct{}

func (boatValidator) ValidateCreate(_ context.Context, boat *Boat) (admission.Warnings, error) {
	if boat.Spec.Rig == "sloop" && boat.Spec.Sails > 2 {
		return nil, fmt.Errorf("a sloop has two sails, not %d", boat.Spec.Sails)
	}
	return nil, nil
}

func (v boatValidator) ValidateUpdate(ctx context.Context, old, boat *Boat) (admission.Warnings, error) {
	if old.Spec.Rig != boat.Spec.Rig {
		return admission.Warnings{"changing the rig takes a shipyard"}, nil
	}
	return v.ValidateCreate(ctx, boat)
}

func (boatValidator) ValidateDelete(context.Context, *Boat) (admission.Warnings, error) {
	return nil, nil
}
