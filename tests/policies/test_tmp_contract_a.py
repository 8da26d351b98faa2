import re, pathlib, os
src = pathlib.Path(__file__).with_name("test_contract.py").read_text()
new = src.replace("BATCH_SIZES = (", "from tests.policies.catalogue_a import POLICIES as _A\nPOLICIES = {n: Case(policy=p, lossless_class=c, row_local=r) for n,(p,c,r) in _A.items()}\nBATCH_SIZES = (",1)
if os.environ.get("TIMED"):
    new = new.replace("Verdict(verify_lengths=verify, accepted=accepted, next_token=accepted)", "Verdict(verify_lengths=verify, accepted=accepted, next_token=accepted, step_time_s=0.01*(1+step%3), draft=draft, divergence=torch.rand(draft.tokens.shape, generator=generator).where(torch.arange(width) < verify[:,None], torch.nan))")
    assert "0.01*(1+step" in new
    new = new.replace("BATCH_SIZES = (1, 4", "BATCH_SIZES = (1,4,5,12,11,9,3,1,0,2,6)*6 + (1, 4")
exec(compile(new, __file__, "exec"))
