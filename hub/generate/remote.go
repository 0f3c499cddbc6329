package generate

import (
	"context"
	"encoding/json"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// host makes parameters of the repositories or pull requests of a Git host
// (AGEN-07, AGEN-10).
func (r *round) host(ctx context.Context, src source) ([]map[string]any, error) {
	text, err := json.Marshal(src.config)
	if err != nil {
		return nil, err
	}
	values, out, err := map[string]string(nil), []map[string]any(nil), error(nil)
	if src.kind == kindSCM {
		values, out, err = r.repositories(ctx, text)
	} else {
		values, out, err = r.pulls(ctx, text)
	}
	if err != nil {
		return nil, err
	}
	for _, params := range out {
		if err := r.addValues(params, values); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *round) repositories(ctx context.Context, config json.RawMessage) (values map[string]string, out []map[string]any, err error) {
	p, err := scm.ParseProvider(config)
	if err != nil {
		return nil, nil, err
	}
	r.watches = append(r.watches, p.Watches()...)
	found, err := p.Repositories(ctx, r.in)
	for _, f := range found {
		out = append(out, f.Params())
	}
	return p.Values, out, err
}

func (r *round) pulls(ctx context.Context, config json.RawMessage) (values map[string]string, out []map[string]any, err error) {
	p, err := scm.ParsePullRequests(config)
	if err != nil {
		return nil, nil, err
	}
	r.watches = append(r.watches, p.Watches()...)
	found, err := p.List(ctx, r.in)
	for _, f := range found {
		out = append(out, f.Params(r.set.spec.GoTemplate))
	}
	return p.Values, out, err
}

// plugin makes parameters of the reply of a plugin (AGEN-13).
func (r *round) plugin(ctx context.Context, src source) ([]map[string]any, error) {
	var spec hub.PluginGenerator
	if err := convert(src.config, &spec); err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"applicationSetName": r.set.name, "input": spec.Input})
	if err != nil {
		return nil, err
	}
	reply, err := r.in.Plugin(ctx, spec.ConfigMapRef.Name, body)
	if err != nil {
		return nil, err
	}
	found, err := pluginReply(reply)
	if err != nil {
		return nil, err
	}
	input := map[string]any{}
	if err := convert(spec.Input.Parameters, &input); err != nil {
		return nil, err
	}
	out := make([]map[string]any, 0, len(found))
	for _, params := range found {
		if r.set.spec.GoTemplate {
			params["generator"] = map[string]any{"input": map[string]any{"parameters": template.Copy(input)}}
		} else {
			params = flat(params)
			for k, v := range texts(map[string]any{"generator": map[string]any{"input": map[string]any{"parameters": input}}}) {
				params[k] = v
			}
		}
		if err := r.addValues(params, spec.Values); err != nil {
			return nil, err
		}
		out = append(out, params)
	}
	return out, nil
}

// pluginReply reads the parameters of a reply. A reply without a list is an
// error: it may be an error page.
func pluginReply(reply []byte) ([]map[string]any, error) {
	var r struct {
		Output *struct {
			Parameters []map[string]any `json:"parameters"`
		} `json:"output"`
	}
	if err := json.Unmarshal(reply, &r); err != nil || r.Output == nil || r.Output.Parameters == nil {
		return nil, fault.With(fault.New(fault.Invalid, "the reply of the plugin has no list output.parameters"), "", "have the plugin return an empty list if it has no parameters")
	}
	for _, p := range r.Output.Parameters {
		if p == nil {
			return nil, fault.New(fault.Invalid, "the reply of the plugin has parameters that are no map")
		}
	}
	return r.Output.Parameters, nil
}
