package importer

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// Waiting lists the imported applications that wait for a confirmation, by
// name.
func Waiting(ctx context.Context, api *client.Client) ([]apimodel.Application, error) {
	var out []apimodel.Application
	err := EachApplication(ctx, api, apimodel.ListApplicationsParams{}, func(x apimodel.Application) error {
		if x.Metadata.Annotations[Imported] == Observed {
			out = append(out, x)
		}
		return nil
	})
	return out, err
}

// Confirm starts the automation of an imported application.
func Confirm(ctx context.Context, api *client.Client, namespace, name string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{Imported: Confirmed}}})
	if err != nil {
		return err
	}
	_, err = client.Read(api.PatchApplication(ctx, namespace, name, apimodel.PatchApplicationParams{}, apimodel.PatchApplicationJSONRequestBody{
		Patch: string(patch), PatchType: apimodel.Merge,
	}))
	return err
}

// WaitingSets lists the imported ApplicationSets that wait for a confirmation.
func WaitingSets(ctx context.Context, api *client.Client) (out []apimodel.ApplicationSet, err error) {
	err = EachSet(ctx, api, func(x apimodel.ApplicationSet) error {
		if x.Metadata.Annotations[Imported] == Observed {
			out = append(out, x)
		}
		return nil
	})
	return out, err
}

// ConfirmSet starts the automation of what an imported ApplicationSet makes from
// now on. Applications that it has made are confirmed by themselves.
func ConfirmSet(ctx context.Context, api *client.Client, x apimodel.ApplicationSet) error {
	m := x.Metadata
	m.Annotations = maps.Clone(m.Annotations)
	m.Annotations[Imported] = Confirmed
	_, err := client.Read(api.UpdateApplicationSet(ctx, m.Namespace, m.Name, apimodel.UpdateApplicationSetParams{IfMatch: `"` + m.ResourceVersion + `"`},
		apimodel.ApplicationSet{ApiVersion: x.ApiVersion, Kind: x.Kind, Metadata: m, Spec: x.Spec}))
	return err
}

// Consequence says what a confirmation of an application does.
func Consequence(x apimodel.Application) string {
	var spec struct {
		SyncPolicy struct {
			Automated *struct {
				Enabled *bool `json:"enabled"`
			} `json:"automated"`
		} `json:"syncPolicy"`
	}
	automated := json.Unmarshal(x.Spec, &spec) == nil && spec.SyncPolicy.Automated != nil &&
		(spec.SyncPolicy.Automated.Enabled == nil || *spec.SyncPolicy.Automated.Enabled)
	switch {
	case !automated:
		return "nothing by itself: it has no automation"
	case x.Status.Sync.Status == "Synced":
		return "its objects are taken over as they are"
	case x.Status.Sync.Status == "OutOfSync":
		return "it is synced: `capstan app diff " + client.QualifiedName(x.Metadata) + "` shows what differs"
	}
	return "it is compared first"
}
